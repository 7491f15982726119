#include "custom_ops/core/linear_algebra/row_arithmetic_simd.h"

#include "custom_ops/core/base/simd.h"

namespace largeout {
namespace LARGEOUT_SIMD {
namespace {

template <class Number>
void AddScaledTo(double factor, const Number* row, int64_t size, double* to) {
  for (int64_t k = 0; k < size; ++k) to[k] += factor * row[k];
}

template <class From, class To>
void ScaleTo(double factor, const From* row, int64_t size, To* to) {
  for (int64_t k = 0; k < size; ++k) to[k] = static_cast<To>(factor * row[k]);
}

}  // namespace

void Dot(const double* a, const double* b, int64_t size, double* dot) {
  constexpr int kSums = 4;  // independent sums, so that additions overlap
  constexpr int kLanesOfDoubles = kLanesOf<double>, kAtOnce = kSums * kLanesOfDoubles;
  Doubles sums[kSums] = {};
  int64_t i = 0;
  for (; i + kAtOnce <= size; i += kAtOnce) {
#pragma GCC unroll 8
    for (int k = 0; k < kSums; ++k) {
      sums[k] += Load(a + i + k * kLanesOfDoubles) * Load(b + i + k * kLanesOfDoubles);
    }
  }
  const Doubles all = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  double sum = 0;
  for (int lane = 0; lane < kLanesOfDoubles; ++lane) sum += all[lane];
  for (; i < size; ++i) sum += a[i] * b[i];
  *dot = sum;
}

#define LARGEOUT_DEFINE_ADD_SCALED(Number)                                     \
  void AddScaled(double factor, const Number* row, int64_t size, double* to) { \
    AddScaledTo(factor, row, size, to);                                        \
  }
LARGEOUT_DEFINE_ADD_SCALED(float)
LARGEOUT_DEFINE_ADD_SCALED(double)
#undef LARGEOUT_DEFINE_ADD_SCALED

#define LARGEOUT_DEFINE_SCALE(From, To)                              \
  void Scale(double factor, const From* row, int64_t size, To* to) { \
    ScaleTo(factor, row, size, to);                                  \
  }
LARGEOUT_DEFINE_SCALE(float, float)
LARGEOUT_DEFINE_SCALE(float, double)
LARGEOUT_DEFINE_SCALE(double, float)
LARGEOUT_DEFINE_SCALE(double, double)
#undef LARGEOUT_DEFINE_SCALE

}  // namespace LARGEOUT_SIMD
}  // namespace largeout
