// Seeds that stay in device memory, so that the host need not wait for them.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_SEED_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_SEED_H_

#include <cstdint>

#include "custom_ops/core/base/philox.h"
#include "custom_ops/cuda/block.h"

namespace largeout {
namespace cuda {

// seed: int64 [2], the seed tensor.
LARGEOUT_DEVICE inline PhiloxSeed SeedAt(const int64_t* seed) {
  return {static_cast<uint64_t>(seed[0]), static_cast<uint64_t>(seed[1])};
}

}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_SEED_H_
