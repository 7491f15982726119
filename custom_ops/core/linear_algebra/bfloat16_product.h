// Products of bfloat16 matrices with float32 sums. They use AMX if the processor has it.
// Otherwise they run at each level of simd_level.h, where they are slower than products of
// floats.
//
// Both factors are stored as pairs of numbers whose products belong to the same sum: a Pair
// holds the numbers k and k + 1, the even one in its lower half. X_simd.cc files include this
// header, so it has no std templates.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_LINEAR_ALGEBRA_BFLOAT16_PRODUCT_H_
#define LARGEOUT_CUSTOM_OPS_CORE_LINEAR_ALGEBRA_BFLOAT16_PRODUCT_H_

#include <cstdint>

#include "custom_ops/core/linear_algebra/dense_product_simd.h"

namespace largeout {

using Pair = uint32_t;

// A row-major matrix of pairs. `stride` is the distance between rows, in pairs.
struct PairMatrix {
  const Pair* data;
  int64_t stride;
};

// The rows and the width of a product are multiples of kPairTile; its depth is a multiple of
// kPairDepth.
inline constexpr int kPairTile = 16;
inline constexpr int kPairDepth = 32;

// out[r, j] += sum over k of a[r, k] * b[k, j], with a [rows, depth / 2] and b [depth / 2,
// width] in pairs. The order of the terms of a sum depends only on the depth. REQUIRES: sizes
// as above; data and strides are multiples of 64 bytes.
using PairProduct = void (*)(const ProductSize& size, const PairMatrix& a, const PairMatrix& b,
                             float* out, int64_t out_stride);

#define LARGEOUT_DECLARE_PAIR_PRODUCT(level)                                             \
  namespace level {                                                                      \
  void AddPairProduct(const ProductSize& size, const PairMatrix& a, const PairMatrix& b, \
                      float* out, int64_t out_stride);                                   \
  }
LARGEOUT_DECLARE_PAIR_PRODUCT(generic)
LARGEOUT_DECLARE_PAIR_PRODUCT(avx2)
LARGEOUT_DECLARE_PAIR_PRODUCT(avx512)
LARGEOUT_DECLARE_PAIR_PRODUCT(amx)
#undef LARGEOUT_DECLARE_PAIR_PRODUCT

namespace amx {
// Whether the compiler supported AMX and the system lets this process use it. REQUIRES: the
// processor has AMX.
bool IsPermitted();
}  // namespace amx

// The product of the active level.
PairProduct ActivePairProduct();

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_LINEAR_ALGEBRA_BFLOAT16_PRODUCT_H_
