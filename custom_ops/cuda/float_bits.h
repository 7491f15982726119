// The bits of floats as integers.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_FLOAT_BITS_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_FLOAT_BITS_H_

#include <cstdint>
#include <cstring>

#include "custom_ops/cuda/block.h"

namespace largeout {
namespace cuda {

LARGEOUT_DEVICE inline uint32_t BitsOf(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  return bits;
}

LARGEOUT_DEVICE inline float FloatOf(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}

}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_FLOAT_BITS_H_
