// The labels of a batch, prepared for ranking by a pass over the classes.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_CLASS_SCAN_CLASS_SCAN_LABELS_H_
#define LARGEOUT_CUSTOM_OPS_CORE_CLASS_SCAN_CLASS_SCAN_LABELS_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "custom_ops/core/class_scan/class_scan.h"
#include "custom_ops/core/class_scan/class_scan_simd.h"

namespace largeout {

// The order of the examples by decreasing number of labels. The examples of a panel then need
// about the same number of slots, and most panels need few.
std::vector<int64_t> ExamplesByLabelCount(const Labels& labels, int64_t batch);

// A label of an example: its logit, its row of the matrix (Labels::Row), and its column.
struct ExampleLabel : ScoredClass {
  int64_t column;
};

class LabelSlots {
 public:
  // The logit of a class for an example of the panels, with the same bits as in the scan.
  using OneLogit = std::function<float(int64_t example, int64_t class_id)>;

  // The panels have the examples of the batch in `order`. Several threads call `one_logit` at
  // once.
  LabelSlots(const OneLogit& one_logit, int64_t dim, const Labels& labels,
             const std::vector<int64_t>& order, const ParallelFor& parallel);

  RankSlots slots() const {
    return {panel_begin_.data(), scores_.data(), previous_.data(), classes_.data()};
  }
  // The number of places in all slots, and in the slots of the largest panel.
  int64_t size() const { return static_cast<int64_t>(scores_.size()); }
  int64_t most_in_panel() const { return most_in_panel_; }

  // The labels of an example (in the order of the panels), one per slot. Labels whose score is
  // NaN or -inf come last.
  const std::vector<ExampleLabel>& labels(int64_t example) const { return labels_[example]; }
  int64_t Place(int64_t example, int64_t slot) const {
    return (panel_begin_[example / kPanelExamples] + slot) * kPanelExamples +
           example % kPanelExamples;
  }

 private:
  void LayOutSlots(int64_t num_panels);
  void FillSlots();

  std::vector<std::vector<ExampleLabel>> labels_;
  std::vector<int64_t> panel_begin_;
  std::vector<float> scores_, previous_;
  std::vector<int32_t> classes_;
  int64_t most_in_panel_ = 0;
};

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_CLASS_SCAN_CLASS_SCAN_LABELS_H_
