// Products of dense matrices of doubles on the GPU.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_DENSE_PRODUCT_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_DENSE_PRODUCT_H_

#include <cstdint>

#include "custom_ops/core/linear_algebra/dense_product_simd.h"
#include "custom_ops/cuda/stream.h"

namespace largeout {
namespace cuda {

// out[r, j] = base[r, j] + factor times the sum over k of a[r, k] scales[k] b[k, j].
struct DenseProduct {
  ProductSize size;
  Strided<double> a;   // [rows, depth]
  Strided<double> b;   // [depth, width]
  const double* base;  // row-major, stride of out; may be out itself; null: zeros
  double* out;
  int64_t out_stride;
  double factor = 1;
  const double* scales = nullptr;  // [depth]; null: ones
  bool lower = false;  // computes only [r, j] with j <= r; others may be overwritten
};

// The bits are deterministic: each sum is in the order of k. REQUIRES: out overlaps neither a
// nor b. All arrays are on the device.
Status Multiply(const DenseProduct& product, Stream stream);

}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_DENSE_PRODUCT_H_
