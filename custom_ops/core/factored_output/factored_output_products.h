// Products of a batch with the state of a factored output layer.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_FACTORED_OUTPUT_FACTORED_OUTPUT_PRODUCTS_H_
#define LARGEOUT_CUSTOM_OPS_CORE_FACTORED_OUTPUT_FACTORED_OUTPUT_PRODUCTS_H_

#include <cstdint>

#include "custom_ops/core/base/parallel.h"

namespace largeout {

// Row-major.
struct DenseRows {
  const double* data;
  int64_t rows;
  int64_t width;
  int64_t stride;
};

enum class Square { kAsItIs, kTransposed };

// out [rows, width] += rows x square [width, width], with multiplications of Numbers (float or
// double), or of doubles if floats might overflow.
template <class Number>
void AddTimesSquare(const DenseRows& rows, const double* square, Square form,
                    const ParallelFor& parallel, double* out, int64_t out_stride);

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_FACTORED_OUTPUT_FACTORED_OUTPUT_PRODUCTS_H_
