// The loops of row_arithmetic.h, at each level of simd_level.h.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_LINEAR_ALGEBRA_ROW_ARITHMETIC_SIMD_H_
#define LARGEOUT_CUSTOM_OPS_CORE_LINEAR_ALGEBRA_ROW_ARITHMETIC_SIMD_H_

#include <cstdint>

namespace largeout {

#define LARGEOUT_DECLARE_ROW_ARITHMETIC(level)                                \
  namespace level {                                                           \
  void Dot(const double* a, const double* b, int64_t size, double* dot);      \
  void AddScaled(double factor, const float* row, int64_t size, double* to);  \
  void AddScaled(double factor, const double* row, int64_t size, double* to); \
  void Scale(double factor, const float* row, int64_t size, float* to);       \
  void Scale(double factor, const float* row, int64_t size, double* to);      \
  void Scale(double factor, const double* row, int64_t size, float* to);      \
  void Scale(double factor, const double* row, int64_t size, double* to);     \
  }
LARGEOUT_DECLARE_ROW_ARITHMETIC(generic)
LARGEOUT_DECLARE_ROW_ARITHMETIC(avx2)
LARGEOUT_DECLARE_ROW_ARITHMETIC(avx512)
#undef LARGEOUT_DECLARE_ROW_ARITHMETIC

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_LINEAR_ALGEBRA_ROW_ARITHMETIC_SIMD_H_
