// Products of matrices of bfloat16 numbers with float32 sums: on AMX where the processor has
// it, else at each level of simd_level.h, where they take longer than products of floats.
//
// Both factors come as pairs of numbers that meet in the sum: a Pair holds those of k and k +
// 1, the even one in its lower half. For X_simd.cc files too: no std templates here.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_LINEAR_ALGEBRA_BFLOAT16_PRODUCT_H_
#define LARGEOUT_CUSTOM_OPS_CORE_LINEAR_ALGEBRA_BFLOAT16_PRODUCT_H_

#include <cstdint>

#include "custom_ops/core/linear_algebra/dense_product_simd.h"

namespace largeout {

using Pair = uint32_t;

// Row-major, its rows so many pairs apart.
struct PairMatrix {
  const Pair* data;
  int64_t stride;
};

// Rows and width of a product are multiples of kPairTile, its depth one of kPairDepth.
inline constexpr int kPairTile = 16;
inline constexpr int kPairDepth = 32;

// out[r, j] += sum over k of a[r, k] * b[k, j], with a [rows, depth / 2] and b [depth / 2,
// width] in pairs. An element is summed in an order that depends on the depth only. REQUIRES:
// sizes as above; data and strides are multiples of 64 bytes.
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
// Whether the compiler knew AMX and the system lets this process use it. REQUIRES: the
// processor has it.
bool IsPermitted();
}  // namespace amx

// The product of the active level.
PairProduct ActivePairProduct();

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_LINEAR_ALGEBRA_BFLOAT16_PRODUCT_H_
