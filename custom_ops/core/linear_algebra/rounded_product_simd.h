// Packs matrices of floats into pairs of bfloat16 numbers (bfloat16_product.h), at each level
// of simd_level.h.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_LINEAR_ALGEBRA_ROUNDED_PRODUCT_SIMD_H_
#define LARGEOUT_CUSTOM_OPS_CORE_LINEAR_ALGEBRA_ROUNDED_PRODUCT_SIMD_H_

#include <cstdint>

#include "custom_ops/core/linear_algebra/bfloat16_product.h"

namespace largeout {

// A block of rows and columns of a row-major matrix.
struct FloatBlock {
  const float* data;
  int64_t stride;
  int64_t rows;
  int64_t columns;
};

// The block is padded with zeros up to multiples of kPairDepth in both directions. Rows of `to`
// are to_stride pairs apart.
#define LARGEOUT_DECLARE_ROUNDED_PRODUCT(level)                                             \
  namespace level {                                                                         \
  /* to [rows, columns / 2]: neighbours in a row are a pair. */                             \
  void PairAlong(const FloatBlock& from, Pair* to, int64_t to_stride);                      \
  /* to [rows / 2, columns]: neighbours in a column are a pair. */                          \
  void PairDown(const FloatBlock& from, Pair* to, int64_t to_stride);                       \
  /* to [columns, rows] = the transpose of from [rows, columns], multiples of kPairTile. */ \
  void TransposePairs(const PairMatrix& from, int64_t rows, int64_t columns, Pair* to,      \
                      int64_t to_stride);                                                   \
  }
LARGEOUT_DECLARE_ROUNDED_PRODUCT(generic)
LARGEOUT_DECLARE_ROUNDED_PRODUCT(avx2)
LARGEOUT_DECLARE_ROUNDED_PRODUCT(avx512)
#undef LARGEOUT_DECLARE_ROUNDED_PRODUCT

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_LINEAR_ALGEBRA_ROUNDED_PRODUCT_SIMD_H_
