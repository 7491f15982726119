// Random numbers for the checks of dense matrices.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_CHECK_RANDOM_DOUBLES_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_CHECK_RANDOM_DOUBLES_H_

#include <cstdint>
#include <random>
#include <vector>

namespace largeout {
namespace cuda {
namespace check {

// Normally distributed.
inline std::vector<double> RandomDoubles(int64_t size, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  std::vector<double> numbers(size);
  for (double& number : numbers) number = normal(random);
  return numbers;
}

}  // namespace check
}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_CHECK_RANDOM_DOUBLES_H_
