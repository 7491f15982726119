// Which panels of the batch have a part in the gradient of a block of classes. For X_simd.cc
// files only.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_CLASS_SCAN_GRADIENT_PANELS_H_
#define LARGEOUT_CUSTOM_OPS_CORE_CLASS_SCAN_GRADIENT_PANELS_H_

#include <cstdint>

#include "custom_ops/core/class_scan_gradient_simd.h"
#include "custom_ops/core/simd.h"

namespace largeout {
namespace LARGEOUT_SIMD {

// Whether all rows of a panel have at most their share of mass in a block: NaN has not.
inline bool IsNegligible(const GradientRows& rows, int64_t panel, int64_t block) {
  const float* masses = rows.log_masses + block * rows.num_rows;
  const int64_t begin = panel * kPanelRows;
  const int64_t end = begin + kPanelRows < rows.num_rows ? begin + kPanelRows : rows.num_rows;
  for (int64_t r = begin; r < end; ++r) {
    if (!(masses[r] - rows.shift[r] <= rows.log_share)) return false;
  }
  return true;
}

// The consecutive panels, at most a chunk of rows, that are not left out of a block.
class ActivePanels {
 public:
  // `label` is the first label of the block, whose classes are [first, last).
  ActivePanels(const GradientRows& rows, int64_t label, int64_t first, int64_t last,
               bool* active)
      : num_panels_((rows.num_rows + kPanelRows - 1) / kPanelRows), active_(active) {
    const int64_t block = first / kBlockClasses;
    for (int64_t panel = 0; panel < num_panels_; ++panel) {
      active[panel] = rows.log_masses == nullptr || !IsNegligible(rows, panel, block);
    }
    for (; label < rows.num_labels && rows.labels[label].class_id < last; ++label) {
      active[rows.labels[label].row / kPanelRows] = true;
    }
  }

  bool any() const {
    for (int64_t panel = 0; panel < num_panels_; ++panel) {
      if (active_[panel]) return true;
    }
    return false;
  }

  // Calls run(panel, number) for each run of them.
  template <class Run>
  void ForEachRun(const Run& run) const {
    constexpr int64_t kMost = kChunkRows / kPanelRows;
    for (int64_t begin = 0; begin < num_panels_;) {
      int64_t end = begin;
      while (end < num_panels_ && end - begin < kMost && active_[end]) ++end;
      if (end > begin) run(begin, end - begin);
      begin = end > begin ? end : begin + 1;
    }
  }

 private:
  const int64_t num_panels_;
  const bool* active_;
};

}  // namespace LARGEOUT_SIMD
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_CLASS_SCAN_GRADIENT_PANELS_H_
