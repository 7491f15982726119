// Products of matrices of floats that are rounded to bfloat16 before they are multiplied, with
// float32 sums. Several times as fast as products of floats if the processor has AMX, otherwise
// slower (bfloat16_product.h).

#ifndef LARGEOUT_CUSTOM_OPS_CORE_LINEAR_ALGEBRA_ROUNDED_PRODUCT_H_
#define LARGEOUT_CUSTOM_OPS_CORE_LINEAR_ALGEBRA_ROUNDED_PRODUCT_H_

#include <cstdint>

#include "custom_ops/core/base/parallel.h"

namespace largeout {

// A factor of a product, stored row-major, or its transpose.
struct Factor {
  const float* data;
  int64_t rows;  // of the factor; if `transposed`, data is [columns, rows]
  int64_t columns;
  bool transposed;
};

// out [a.rows, b.columns] = a x b. The bits do not depend on the number of threads. REQUIRES:
// a.columns == b.rows.
void RoundedProduct(const Factor& a, const Factor& b, const ParallelFor& parallel, float* out);

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_LINEAR_ALGEBRA_ROUNDED_PRODUCT_H_
