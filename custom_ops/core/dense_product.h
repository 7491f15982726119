// Products of dense matrices of doubles on several threads, in blocks that fit into caches.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_DENSE_PRODUCT_H_
#define LARGEOUT_CUSTOM_OPS_CORE_DENSE_PRODUCT_H_

#include <cstdint>

#include "custom_ops/core/dense_product_simd.h"
#include "custom_ops/core/padded_matrix.h"
#include "custom_ops/core/parallel.h"

namespace largeout {

// out[r, j] += sum over k of a[r, k] * b[k, j], each in the order of k: the same bits on any
// number of threads. b and out are row-major with the strides given.
// REQUIRES: size.width is a multiple of kWidthMultiple.
void AddProductInBlocks(const ProductSize& size, const Strided<double>& a, const double* b,
                        int64_t b_stride, double* out, int64_t out_stride,
                        const ParallelFor& parallel);

// The same of whole matrices: b is [depth, width], and a as many rows as out.
void AddProductInBlocks(const Strided<double>& a, const PaddedMatrix& b, PaddedMatrix* out,
                        const ParallelFor& parallel);

// The same for the elements [r, j] with j <= r alone; what it writes to others has no meaning.
// REQUIRES: out has as many columns as rows.
void AddLowerProduct(const Strided<double>& a, const PaddedMatrix& b, PaddedMatrix* out,
                     const ParallelFor& parallel);

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_DENSE_PRODUCT_H_
