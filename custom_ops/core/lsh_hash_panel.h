// The values of kHashRows rows, whatever they were made from.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_LSH_HASH_PANEL_H_
#define LARGEOUT_CUSTOM_OPS_CORE_LSH_HASH_PANEL_H_

#include <cstdint>

#include "custom_ops/core/aligned_array.h"
#include "custom_ops/core/lsh_hash.h"
#include "custom_ops/core/lsh_hash_simd.h"

namespace largeout {

AbsentNumbers AbsentFor(HashKind kind);

// What stands in the panel for a number of a row.
float InPanel(float number, AbsentNumbers absent);

// Hashes panel after panel. One a thread.
class PanelHasher {
 public:
  explicit PanelHasher(const HashFamily& family);

  // [dim, kHashRows], to be filled. At first all numbers of all rows are 0.
  float* panel() { return panel_.get(); }

  // The values [NumHashValues, kHashRows] of what is in the panel.
  const int32_t* Values(const UpcomingRows& upcoming);

 private:
  const HashFamily& family_;
  const int64_t num_values_;
  const int64_t panel_dim_;
  const AlignedFloats panel_, scratch_;
  const AlignedArray<int32_t> values_;
};

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_LSH_HASH_PANEL_H_
