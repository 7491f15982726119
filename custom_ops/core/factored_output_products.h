// Products of a batch with the state of a factored output layer.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_FACTORED_OUTPUT_PRODUCTS_H_
#define LARGEOUT_CUSTOM_OPS_CORE_FACTORED_OUTPUT_PRODUCTS_H_

#include <cstdint>

#include "custom_ops/core/parallel.h"

namespace largeout {

template <class Number>
double Dot(const Number* a, const double* b, int64_t size) {
  constexpr int64_t kSums = 8;  // so that additions need not wait for each other
  double sums[kSums] = {};
  int64_t i = 0;
  for (; i + kSums <= size; i += kSums) {
    for (int64_t k = 0; k < kSums; ++k) sums[k] += a[i + k] * b[i + k];
  }
  for (int64_t k = 0; i + k < size; ++k) sums[k] += a[i + k] * b[i + k];
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) +
         ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

// Row-major.
struct DenseRows {
  const double* data;
  int64_t rows;
  int64_t width;
  int64_t stride;
};

enum class Square { kAsItIs, kTransposed };

// out [rows, width] += rows x square [width, width], with multiplications of Numbers, float or
// double; of doubles where floats might overflow.
template <class Number>
void AddTimesSquare(const DenseRows& rows, const double* square, Square form,
                    const ParallelFor& parallel, double* out, int64_t out_stride);

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_FACTORED_OUTPUT_PRODUCTS_H_
