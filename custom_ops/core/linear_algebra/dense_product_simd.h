// Products of dense matrices, at each level of simd_level.h.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_LINEAR_ALGEBRA_DENSE_PRODUCT_SIMD_H_
#define LARGEOUT_CUSTOM_OPS_CORE_LINEAR_ALGEBRA_DENSE_PRODUCT_SIMD_H_

#include <cstdint>

namespace largeout {

// A matrix whose element [r, k] is data[r * row_stride + k * step]: row-major with step 1,
// its transpose with row_stride 1.
template <class Number>
struct Strided {
  const Number* data;
  int64_t row_stride;
  int64_t step;
};

// The sizes of a product: [rows, depth] times [depth, width].
struct ProductSize {
  int64_t rows;
  int64_t depth;
  int64_t width;
};

// The width of a product is a multiple of this: the largest number of floats in a vector, which
// is twice the number of doubles.
inline constexpr int kWidthMultiple = 16;

#define LARGEOUT_DECLARE_DENSE_PRODUCT_OF(Number)                                              \
  /* out[r, j] += sum over k of a[r, k] * b[k, j], each in the order of k. b and out are       \
     row-major with the strides given.                                                         \
     REQUIRES: size.width is a multiple of kWidthMultiple. */                                  \
  void AddProduct(const ProductSize& size, const Strided<Number>& a, const Number* b,          \
                  int64_t b_stride, Number* out, int64_t out_stride);                          \
  /* The same, where the sum is one of Numbers and only it is added to a double.               \
     REQUIRES: b can be read, not out written, up to a width that is such a multiple. */       \
  void AddProductToDoubles(const ProductSize& size, const Strided<Number>& a, const Number* b, \
                           int64_t b_stride, double* out, int64_t out_stride);
#define LARGEOUT_DECLARE_DENSE_PRODUCT(level) \
  namespace level {                           \
  LARGEOUT_DECLARE_DENSE_PRODUCT_OF(float)    \
  LARGEOUT_DECLARE_DENSE_PRODUCT_OF(double)   \
  }
LARGEOUT_DECLARE_DENSE_PRODUCT(generic)
LARGEOUT_DECLARE_DENSE_PRODUCT(avx2)
LARGEOUT_DECLARE_DENSE_PRODUCT(avx512)
#undef LARGEOUT_DECLARE_DENSE_PRODUCT
#undef LARGEOUT_DECLARE_DENSE_PRODUCT_OF

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_LINEAR_ALGEBRA_DENSE_PRODUCT_SIMD_H_
