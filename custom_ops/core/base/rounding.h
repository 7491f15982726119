// Division of sizes, rounded up.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_BASE_ROUNDING_H_
#define LARGEOUT_CUSTOM_OPS_CORE_BASE_ROUNDING_H_

#include <cstdint>

#include "custom_ops/core/base/host_device.h"

namespace largeout {

// REQUIRES: a >= 0, b > 0.
LARGEOUT_HOST_DEVICE constexpr int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// The smallest multiple of `multiple` that is at least a. REQUIRES: a >= 0, multiple > 0.
LARGEOUT_HOST_DEVICE constexpr int64_t RoundUp(int64_t a, int64_t multiple) {
  return CeilDiv(a, multiple) * multiple;
}

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_BASE_ROUNDING_H_
