// Whether numbers are finite.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_BASE_FINITE_H_
#define LARGEOUT_CUSTOM_OPS_CORE_BASE_FINITE_H_

#include <cstdint>
#include <cstring>

#include "custom_ops/core/base/host_device.h"

namespace largeout {

LARGEOUT_HOST_DEVICE inline bool IsFinite(float number) { return number - number == 0; }
LARGEOUT_HOST_DEVICE inline bool IsFinite(double number) { return number - number == 0; }

// Checks several numbers at once: the exponent of a number that is not finite is all ones, so
// adding one to its lowest bit changes the sign.
template <class Bits, class Number>
LARGEOUT_HOST_DEVICE bool AllFiniteByBits(Bits exponent, const Number* numbers, int64_t size) {
  const Bits lowest_of_it = exponent & -exponent;
  Bits any = 0;
  for (int64_t i = 0; i < size; ++i) {
    Bits bits;
    std::memcpy(&bits, numbers + i, sizeof(bits));
    any |= (bits & exponent) + lowest_of_it;
  }
  return any >> (8 * sizeof(Bits) - 1) == 0;
}

LARGEOUT_HOST_DEVICE inline bool AllFinite(const float* numbers, int64_t size) {
  return AllFiniteByBits<uint32_t>(0x7f800000, numbers, size);
}
LARGEOUT_HOST_DEVICE inline bool AllFinite(const double* numbers, int64_t size) {
  return AllFiniteByBits<uint64_t>(0x7ff0000000000000, numbers, size);
}

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_BASE_FINITE_H_
