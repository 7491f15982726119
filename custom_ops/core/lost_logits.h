// Logits that say nothing of their classes, for CPU and GPU.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_LOST_LOGITS_H_
#define LARGEOUT_CUSTOM_OPS_CORE_LOST_LOGITS_H_

#include <cstdint>

#include "custom_ops/core/class_scan_types.h"
#include "custom_ops/core/host_device.h"

namespace largeout {

LARGEOUT_HOST_DEVICE inline bool IsFinite(float number) { return number - number == 0; }

LARGEOUT_HOST_DEVICE inline bool AllFinite(const float* numbers, int64_t size) {
  for (int64_t i = 0; i < size; ++i) {
    if (!IsFinite(numbers[i])) return false;
  }
  return true;
}

// Whether the logit of a class is no number although its row and its bias are: then features
// are not finite, or the sum overflows.
LARGEOUT_HOST_DEVICE inline bool IsLost(const ClassMatrix& matrix, const ScoredClass& scored) {
  return !IsFinite(scored.score) &&
         (matrix.bias == nullptr || IsFinite(matrix.bias[scored.id])) &&
         AllFinite(matrix.embeddings + scored.id * matrix.dim, matrix.dim);
}

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_LOST_LOGITS_H_
