// The loop of dense_adam.cc, compiled for each level of simd_level.h.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_OPTIMIZERS_DENSE_ADAM_SIMD_H_
#define LARGEOUT_CUSTOM_OPS_CORE_OPTIMIZERS_DENSE_ADAM_SIMD_H_

#include <cstdint>

namespace largeout {

// m += (g - m) gain_1; v += (g^2 - v) gain_2; w -= step_size m / (sqrt(v) + epsilon). Each
// operation is rounded separately and in this order, so the result has the same bits at all
// levels.
struct DenseAdamArguments {
  float* variable;
  float* momentum;
  float* velocity;
  const float* gradient;
  float step_size;  // learning rate with bias correction
  float gain_1;     // 1 - beta_1
  float gain_2;     // 1 - beta_2
  float epsilon;
};

#define LARGEOUT_DECLARE_DENSE_ADAM(level)                                         \
  namespace level {                                                                \
  void DenseAdam(const DenseAdamArguments& arguments, int64_t begin, int64_t end); \
  }
LARGEOUT_DECLARE_DENSE_ADAM(generic)
LARGEOUT_DECLARE_DENSE_ADAM(avx2)
LARGEOUT_DECLARE_DENSE_ADAM(avx512)
#undef LARGEOUT_DECLARE_DENSE_ADAM

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_OPTIMIZERS_DENSE_ADAM_SIMD_H_
