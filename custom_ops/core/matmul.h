// Products of two dense matrices of floats on several threads, of any shape.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_MATMUL_H_
#define LARGEOUT_CUSTOM_OPS_CORE_MATMUL_H_

#include "custom_ops/core/dense_product_simd.h"
#include "custom_ops/core/parallel.h"

namespace largeout {

// out [size.rows, size.width], row-major without gaps, = a [size.rows, size.depth] times
// b [size.depth, size.width]. Each factor is row-major or the transpose of a row-major matrix.
// Each sum is in the order of the depth: the same bits on any number of threads.
void Multiply(const ProductSize& size, const Strided<float>& a, const Strided<float>& b,
              const ParallelFor& parallel, float* out);

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_MATMUL_H_
