// The vectorised loops of unit_rows.cc.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_CLASS_SCAN_UNIT_ROWS_SIMD_H_
#define LARGEOUT_CUSTOM_OPS_CORE_CLASS_SCAN_UNIT_ROWS_SIMD_H_

#include <cstdint>

namespace largeout {

#define LARGEOUT_DECLARE_UNIT_ROWS(level)                                     \
  namespace level {                                                           \
  /* sum = the sum of squares of row [dim] in float32, which may overflow. */ \
  void SumRowSquares(const float* row, int64_t dim, float* sum);              \
  /* copy [dim] = factor * row [dim]. */                                      \
  void ScaleRow(const float* row, int64_t dim, float factor, float* copy);    \
  }
LARGEOUT_DECLARE_UNIT_ROWS(generic)
LARGEOUT_DECLARE_UNIT_ROWS(avx2)
LARGEOUT_DECLARE_UNIT_ROWS(avx512)
#undef LARGEOUT_DECLARE_UNIT_ROWS

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_CLASS_SCAN_UNIT_ROWS_SIMD_H_
