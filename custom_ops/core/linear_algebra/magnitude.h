// Bounds of products, which show that sums cannot overflow without reading the sums.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_LINEAR_ALGEBRA_MAGNITUDE_H_
#define LARGEOUT_CUSTOM_OPS_CORE_LINEAR_ALGEBRA_MAGNITUDE_H_

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "custom_ops/core/linear_algebra/padded_matrix.h"

namespace largeout {

// The sum of the absolute values of `size` numbers; infinite or NaN if one of them is.
template <class Number>
double SumOfAbsolutes(const Number* numbers, int64_t size) {
  constexpr int64_t kSums = 16;  // independent sums, so that additions overlap
  Number sums[kSums] = {};
  int64_t i = 0;
  for (; i + kSums <= size; i += kSums) {
    for (int64_t k = 0; k < kSums; ++k) sums[k] += std::abs(numbers[i + k]);
  }
  for (int64_t k = 0; i + k < size; ++k) sums[k] += std::abs(numbers[i + k]);
  double sum = 0;
  for (Number one : sums) sum += one;
  return sum;
}

template <class Number>
double SumOfAbsolutes(const PaddedMatrixOf<Number>& matrix) {
  double sum = 0;
  for (int64_t i = 0; i < matrix.rows(); ++i) {
    sum += SumOfAbsolutes(matrix.row(i), matrix.width());
  }
  return sum;
}

// Whether the product of two matrices is safe, given the sums of their absolute values: no
// intermediate result overflows a Number, and adding the product to a finite double keeps the
// double finite (half of the last place of the largest double is 1e292).
template <class Number>
bool ProductFits(double sum, double other) {
  constexpr bool kIsFloat = std::is_same_v<Number, float>;
  constexpr double kMost = kIsFloat ? std::numeric_limits<float>::max() / 4.0 : 1e290;
  return sum * other < kMost && sum < kMost && other < kMost;
}

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_LINEAR_ALGEBRA_MAGNITUDE_H_
