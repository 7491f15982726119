// Whether numbers are finite.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_FINITE_H_
#define LARGEOUT_CUSTOM_OPS_CORE_FINITE_H_

#include <cstdint>
#include <cstring>

#include "custom_ops/core/host_device.h"

namespace largeout {

LARGEOUT_HOST_DEVICE inline bool IsFinite(float number) { return number - number == 0; }
LARGEOUT_HOST_DEVICE inline bool IsFinite(double number) { return number - number == 0; }

LARGEOUT_HOST_DEVICE inline bool AllFinite(const float* numbers, int64_t size) {
  for (int64_t i = 0; i < size; ++i) {
    if (!IsFinite(numbers[i])) return false;
  }
  return true;
}

// Several at once: the exponent of what is not finite is all ones, and one more in its lowest
// bit changes the sign.
inline bool AllFinite(const double* numbers, int64_t size) {
  constexpr uint64_t kExponent = 0x7ff0000000000000, kLowestOfIt = 0x0010000000000000;
  uint64_t any = 0;
  for (int64_t i = 0; i < size; ++i) {
    uint64_t bits;
    std::memcpy(&bits, numbers + i, sizeof(bits));
    any |= (bits & kExponent) + kLowestOfIt;
  }
  return any >> 63 == 0;
}

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_FINITE_H_
