// Products of dense matrices on several threads, in blocks that fit into caches. Number: float
// or double.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_LINEAR_ALGEBRA_DENSE_PRODUCT_H_
#define LARGEOUT_CUSTOM_OPS_CORE_LINEAR_ALGEBRA_DENSE_PRODUCT_H_

#include <cstdint>

#include "custom_ops/core/base/parallel.h"
#include "custom_ops/core/linear_algebra/dense_product_simd.h"
#include "custom_ops/core/linear_algebra/padded_matrix.h"

namespace largeout {

// out[r, j] += sum over k of a[r, k] * b[k, j], each in the order of k: the same bits on any
// number of threads. b and out are row-major with the strides given.
// REQUIRES: size.width is a multiple of kWidthMultiple.
template <class Number>
void AddProductInBlocks(const ProductSize& size, const Strided<Number>& a, const Number* b,
                        int64_t b_stride, Number* out, int64_t out_stride,
                        const ParallelFor& parallel);

// The same of whole matrices: b is [depth, width], and a as many rows as out.
template <class Number>
void AddProductInBlocks(const Strided<Number>& a, const PaddedMatrixOf<Number>& b,
                        PaddedMatrixOf<Number>* out, const ParallelFor& parallel);

// The same for the elements [r, j] with j <= r alone; what it writes to others has no meaning.
// REQUIRES: out has as many columns as rows.
template <class Number>
void AddLowerProduct(const Strided<Number>& a, const PaddedMatrixOf<Number>& b,
                     PaddedMatrixOf<Number>* out, const ParallelFor& parallel);

// out [rows, width of b] += a x b: a few terms at a time are summed as Numbers, and these sums
// as doubles.
template <class Number>
void AddProductToDoubles(int64_t rows, const Strided<Number>& a,
                         const PaddedMatrixOf<Number>& b, double* out, int64_t out_stride,
                         const ParallelFor& parallel);

// The same for the elements [r, j] with j <= r alone; others are left or written.
// REQUIRES: rows is the width of b.
template <class Number>
void AddLowerProductToDoubles(int64_t rows, const Strided<Number>& a,
                              const PaddedMatrixOf<Number>& b, double* out, int64_t out_stride,
                              const ParallelFor& parallel);

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_LINEAR_ALGEBRA_DENSE_PRODUCT_H_
