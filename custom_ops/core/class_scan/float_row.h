// Rows of a class matrix that may be in bfloat16.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_CLASS_SCAN_FLOAT_ROW_H_
#define LARGEOUT_CUSTOM_OPS_CORE_CLASS_SCAN_FLOAT_ROW_H_

#include "custom_ops/core/base/bfloat16_rows.h"
#include "custom_ops/core/class_scan/class_scan_types.h"

namespace largeout {

// Row `row` in float32: the memory of the matrix, or `wide` [dim].
inline const float* FloatRow(const ClassMatrix& matrix, int64_t row, float* wide) {
  if (matrix.bfloat16_rows == nullptr) return matrix.embeddings + row * matrix.dim;
  WidenRow(matrix.bfloat16_rows + row * matrix.dim, matrix.dim, wide);
  return wide;
}

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_CLASS_SCAN_FLOAT_ROW_H_
