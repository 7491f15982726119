#include "custom_ops/core/class_scan/class_scan_labels.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "custom_ops/core/base/counting_sort.h"
#include "custom_ops/core/base/rounding.h"
#include "custom_ops/core/class_scan/score_order.h"

namespace largeout {
namespace {

// The highest float below `score`. Subnormal numbers, which a processor may treat as 0, count
// as 0.
float PreviousScore(float score) {
  constexpr float tiny = std::numeric_limits<float>::min();
  return std::fabs(score) < tiny ? -tiny : std::nextafter(score, -HUGE_VALF);
}

// The labels of example `example` in the order of the panels, which is example `b` of the
// batch. The best label comes last.
std::vector<ExampleLabel> SortedLabels(const LabelSlots::OneLogit& one_logit, int64_t example,
                                       const Labels& labels, int64_t b) {
  std::vector<ExampleLabel> sorted;
  for (int64_t column = 0; column < labels.width; ++column) {
    const int64_t i = b * labels.width + column;
    if (labels.ids[i] < 0) continue;
    const int32_t id = labels.Row(i);
    const float score = labels.logits != nullptr ? labels.logits[i] : one_logit(example, id);
    sorted.push_back({{score, id}, column});
  }
  const auto unranked = std::partition(sorted.begin(), sorted.end(),
                                       [](const ExampleLabel& a) { return IsRanked(a.score); });
  std::sort(sorted.begin(), unranked,
            [](const ExampleLabel& a, const ExampleLabel& b) { return ComesBefore(b, a); });
  return sorted;
}

}  // namespace

std::vector<int64_t> ExamplesByLabelCount(const Labels& labels, int64_t batch) {
  std::vector<int64_t> count(batch);
  for (int64_t b = 0; b < batch; ++b) {
    const int64_t* ids = labels.ids + b * labels.width;
    count[b] = std::count_if(ids, ids + labels.width, [](int64_t id) { return id >= 0; });
  }
  std::vector<int64_t> order(batch);
  const auto num_missing = [&](int64_t b) { return labels.width - count[b]; };
  CountingSort most_first(Chunks(batch), labels.width + 1);
  most_first.Count(num_missing);
  most_first.Place(num_missing, [&](int64_t b, int32_t place) { order[place] = b; });
  return order;
}

LabelSlots::LabelSlots(const OneLogit& one_logit, int64_t dim, const Labels& labels,
                       const std::vector<int64_t>& order, const ParallelFor& parallel)
    : labels_(order.size()) {
  const int64_t cost = 4 * labels.width * dim;
  parallel(order.size(), cost, [&](int64_t begin, int64_t end) {
    for (int64_t example = begin; example < end; ++example) {
      labels_[example] = SortedLabels(one_logit, example, labels, order[example]);
    }
  });
  LayOutSlots(CeilDiv(order.size(), kPanelExamples));
  FillSlots();
}

void LabelSlots::LayOutSlots(int64_t num_panels) {
  const int64_t num_examples = static_cast<int64_t>(labels_.size());
  panel_begin_.assign(1, 0);
  for (int64_t panel = 0; panel < num_panels; ++panel) {
    int64_t most = 0;
    const int64_t end = std::min(num_examples, (panel + 1) * kPanelExamples);
    for (int64_t example = panel * kPanelExamples; example < end; ++example) {
      most = std::max(most, static_cast<int64_t>(labels_[example].size()));
    }
    panel_begin_.push_back(panel_begin_.back() + most);
    most_in_panel_ = std::max(most_in_panel_, most);
  }
}

void LabelSlots::FillSlots() {
  scores_.assign(panel_begin_.back() * kPanelExamples, std::numeric_limits<float>::quiet_NaN());
  previous_ = scores_;
  classes_.assign(scores_.size(), -1);
  for (size_t example = 0; example < labels_.size(); ++example) {
    for (size_t slot = 0; slot < labels_[example].size(); ++slot) {
      const ExampleLabel& label = labels_[example][slot];
      if (!IsRanked(label.score)) continue;
      scores_[Place(example, slot)] = label.score;
      previous_[Place(example, slot)] = PreviousScore(label.score);
      classes_[Place(example, slot)] = label.id;
    }
  }
}

}  // namespace largeout
