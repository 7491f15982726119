// Logits that are invalid although their class is valid.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_CLASS_SCAN_LOST_LOGITS_H_
#define LARGEOUT_CUSTOM_OPS_CORE_CLASS_SCAN_LOST_LOGITS_H_

#include "custom_ops/core/base/finite.h"
#include "custom_ops/core/class_scan/class_scan_types.h"

namespace largeout {

// Whether the logit of a class is not finite although its row and its bias are. This happens if
// the features are not finite, or if the sum overflows.
inline bool IsLost(const ClassMatrix& matrix, const ScoredClass& scored) {
  return !IsFinite(scored.score) &&
         (matrix.bias == nullptr || IsFinite(matrix.bias[scored.id])) &&
         AllFinite(matrix.embeddings + scored.id * matrix.dim, matrix.dim);
}

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_CLASS_SCAN_LOST_LOGITS_H_
