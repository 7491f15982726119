// Computes the values of kHashRows rows, dense or sparse.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_LSH_LSH_HASH_PANEL_H_
#define LARGEOUT_CUSTOM_OPS_CORE_LSH_LSH_HASH_PANEL_H_

#include <cstdint>
#include <limits>

#include "custom_ops/core/base/aligned_array.h"
#include "custom_ops/core/base/host_device.h"
#include "custom_ops/core/lsh/lsh_hash.h"
#include "custom_ops/core/lsh/lsh_hash_simd.h"

namespace largeout {

LARGEOUT_HOST_DEVICE inline AbsentNumbers AbsentFor(HashKind kind) {
  switch (kind) {
    case HashKind::kWta:
      return AbsentNumbers::kNan;
    case HashKind::kDwta:
      return AbsentNumbers::kNanAndZero;
    default:
      return AbsentNumbers::kNone;
  }
}

// The panel's entry for a number of a row.
LARGEOUT_HOST_DEVICE inline float InPanel(float number, AbsentNumbers absent) {
  const bool counts = absent == AbsentNumbers::kNone || number > 0 || number < 0 ||
                      (number == 0 && absent == AbsentNumbers::kNan);
  return counts ? number : -std::numeric_limits<float>::infinity();
}

// Returns which value of DWTA replaces the empty value h: the first that is not empty, in an
// order of all numbers that depends only on h and num_values. REQUIRES: at least one value is
// not kNoValue.
LARGEOUT_HOST_DEVICE inline int64_t LenderOf(int64_t h, int64_t num_values,
                                             const int32_t* values) {
  uint64_t mask = 0;
  while (mask + 1 < static_cast<uint64_t>(num_values)) mask = 2 * mask + 1;
  const uint64_t mixed = static_cast<uint64_t>(h + 1) * 0x9E3779B97F4A7C15u;
  const uint64_t stride = mixed >> 8 | 1;
  for (uint64_t probe = mixed >> 40;; probe += stride) {
    const auto j = static_cast<int64_t>(probe & mask);
    if (j < num_values && values[j] != kNoValue) return j;
  }
}

// Hashes one panel after another. Each thread uses its own PanelHasher.
class PanelHasher {
 public:
  explicit PanelHasher(const HashFamily& family);

  // [dim, kHashRows], to be filled by the caller. Initially all numbers are 0.
  float* panel() { return panel_.get(); }

  // The values [NumHashValues, kHashRows] of the rows in the panel.
  const int32_t* Values(const UpcomingRows& upcoming);

 private:
  const HashFamily& family_;
  const int64_t num_values_;
  const int64_t panel_dim_;
  const AlignedFloats panel_, scratch_;
  const AlignedArray<int32_t> values_;
};

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_LSH_LSH_HASH_PANEL_H_
