#include "custom_ops/core/class_scan_labels.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "custom_ops/core/class_scan_panels.h"
#include "custom_ops/core/simd_level.h"

namespace largeout {
namespace {

// The highest float below `score`; numbers that a processor may take for 0
// count as 0.
float PreviousScore(float score) {
  constexpr float tiny = std::numeric_limits<float>::min();
  return std::fabs(score) < tiny ? -tiny : std::nextafter(score, -HUGE_VALF);
}

// The labels of a row by rising score, of equal ones the later class first.
std::vector<RankedLabel> SortedLabels(const ClassMatrix& matrix, const Panels& panels,
                                      int64_t row, const int64_t* ids, int64_t width) {
  std::vector<RankedLabel> labels;
  for (int64_t column = 0; column < width; ++column) {
    if (ids[column] < 0) continue;
    float score;
    LARGEOUT_SIMD_DISPATCH(ScanOneLogit, matrix, panels, row, ids[column], &score);
    labels.push_back({score, static_cast<int32_t>(ids[column]), column});
  }
  const auto unranked = std::partition(labels.begin(), labels.end(),
                                       [](const RankedLabel& a) { return a.ranked(); });
  std::sort(labels.begin(), unranked, [](const RankedLabel& a, const RankedLabel& b) {
    return a.score < b.score || (a.score == b.score && a.id > b.id);
  });
  return labels;
}

}  // namespace

std::vector<int64_t> RowsByLabelCount(const Labels& labels, int64_t batch) {
  std::vector<int64_t> count(batch);
  for (int64_t b = 0; b < batch; ++b) {
    const int64_t* ids = labels.ids + b * labels.width;
    count[b] = std::count_if(ids, ids + labels.width, [](int64_t id) { return id >= 0; });
  }
  std::vector<int64_t> order = InOrder(batch);
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return count[a] > count[b]; });
  return order;
}

LabelSlots::LabelSlots(const ClassMatrix& matrix, const Panels& panels, const Labels& labels,
                       const std::vector<int64_t>& order, const ParallelFor& parallel)
    : rows_(order.size()) {
  const int64_t cost = 4 * labels.width * matrix.dim;
  parallel(order.size(), cost, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      rows_[row] = SortedLabels(matrix, panels, row, labels.ids + order[row] * labels.width,
                                labels.width);
    }
  });
  LayOutSlots(panels.num_panels);
  FillSlots();
}

void LabelSlots::LayOutSlots(int64_t num_panels) {
  const int64_t num_rows = static_cast<int64_t>(rows_.size());
  panel_begin_.assign(1, 0);
  for (int64_t panel = 0; panel < num_panels; ++panel) {
    int64_t most = 0;
    const int64_t end = std::min(num_rows, (panel + 1) * kPanelRows);
    for (int64_t row = panel * kPanelRows; row < end; ++row) {
      most = std::max(most, static_cast<int64_t>(rows_[row].size()));
    }
    panel_begin_.push_back(panel_begin_.back() + most);
    most_in_panel_ = std::max(most_in_panel_, most);
  }
}

void LabelSlots::FillSlots() {
  scores_.assign(panel_begin_.back() * kPanelRows, std::numeric_limits<float>::quiet_NaN());
  previous_ = scores_;
  classes_.assign(scores_.size(), -1);
  for (size_t row = 0; row < rows_.size(); ++row) {
    for (size_t slot = 0; slot < rows_[row].size(); ++slot) {
      const RankedLabel& label = rows_[row][slot];
      if (!label.ranked()) continue;
      scores_[Place(row, slot)] = label.score;
      previous_[Place(row, slot)] = PreviousScore(label.score);
      classes_[Place(row, slot)] = label.id;
    }
  }
}

}  // namespace largeout
