// Sums and products of rows of floats or doubles, computed in double.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_LINEAR_ALGEBRA_ROW_ARITHMETIC_H_
#define LARGEOUT_CUSTOM_OPS_CORE_LINEAR_ALGEBRA_ROW_ARITHMETIC_H_

#include <cstdint>

#include "custom_ops/core/base/simd_level.h"
#include "custom_ops/core/linear_algebra/row_arithmetic_simd.h"

namespace largeout {

inline double Dot(const double* a, const double* b, int64_t size) {
  double dot;
  LARGEOUT_SIMD_DISPATCH(Dot, a, b, size, &dot);
  return dot;
}

// to += factor row.
template <class Number>
void AddScaledRow(double factor, const Number* row, int64_t size, double* to) {
  LARGEOUT_SIMD_DISPATCH(AddScaled, factor, row, size, to);
}

// to = factor row. `to` may have another number type.
template <class From, class To>
void ScaleRow(double factor, const From* row, int64_t size, To* to) {
  LARGEOUT_SIMD_DISPATCH(Scale, factor, row, size, to);
}

// to = row, converted to the number type of `to`.
template <class From, class To>
void ConvertRow(const From* row, int64_t size, To* to) {
  ScaleRow(1, row, size, to);
}

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_LINEAR_ALGEBRA_ROW_ARITHMETIC_H_
