// Products of dense matrices on several threads, in blocks that fit into the caches. Number:
// float or double.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_LINEAR_ALGEBRA_DENSE_PRODUCT_H_
#define LARGEOUT_CUSTOM_OPS_CORE_LINEAR_ALGEBRA_DENSE_PRODUCT_H_

#include <cstdint>

#include "custom_ops/core/base/parallel.h"
#include "custom_ops/core/linear_algebra/dense_product_simd.h"
#include "custom_ops/core/linear_algebra/padded_matrix.h"

namespace largeout {

// out[r, j] += sum over k of a[r, k] * b[k, j], added in the order of k. The bits do not depend
// on the number of threads. b and out are row-major with the given strides. REQUIRES:
// size.width is a multiple of kWidthMultiple.
template <class Number>
void AddProductInBlocks(const ProductSize& size, const Strided<Number>& a, const Number* b,
                        int64_t b_stride, Number* out, int64_t out_stride,
                        const ParallelFor& parallel);

// The same for whole matrices: b is [depth, width], and a has as many rows as out.
template <class Number>
void AddProductInBlocks(const Strided<Number>& a, const PaddedMatrixOf<Number>& b,
                        PaddedMatrixOf<Number>* out, const ParallelFor& parallel);

// The same for the elements [r, j] with j <= r only. The other elements may be overwritten with
// meaningless values. REQUIRES: out has as many columns as rows.
template <class Number>
void AddLowerProduct(const Strided<Number>& a, const PaddedMatrixOf<Number>& b,
                     PaddedMatrixOf<Number>* out, const ParallelFor& parallel);

// out [rows, width of b] += a x b. A few terms at a time are summed as Numbers, and these
// partial sums are added as doubles.
template <class Number>
void AddProductToDoubles(int64_t rows, const Strided<Number>& a,
                         const PaddedMatrixOf<Number>& b, double* out, int64_t out_stride,
                         const ParallelFor& parallel);

// The same for the elements [r, j] with j <= r only. The other elements may be overwritten.
// REQUIRES: rows is the width of b.
template <class Number>
void AddLowerProductToDoubles(int64_t rows, const Strided<Number>& a,
                              const PaddedMatrixOf<Number>& b, double* out, int64_t out_stride,
                              const ParallelFor& parallel);

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_LINEAR_ALGEBRA_DENSE_PRODUCT_H_
