#include "custom_ops/core/class_scan/class_scan.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <vector>

#include "custom_ops/core/base/rounding.h"
#include "custom_ops/core/base/simd_level.h"
#include "custom_ops/core/class_scan/class_scan_bfloat16.h"
#include "custom_ops/core/class_scan/class_scan_labels.h"
#include "custom_ops/core/class_scan/class_scan_panels.h"
#include "custom_ops/core/class_scan/score_order.h"
#include "custom_ops/core/class_scan/unit_rows.h"

namespace largeout {
namespace {

constexpr int64_t kMostShards = 256;

// Computes the logits of a batch, with its examples in a given order and with products of
// either kind.
class Logits {
 public:
  Logits(const ClassMatrix& matrix, const Features& features, const std::vector<int64_t>& order,
         ProductNumbers numbers, const ParallelFor& parallel)
      : matrix_(matrix) {
    if (numbers == ProductNumbers::kBfloat16) {
      pairs_ = std::make_unique<PairedFeatures>(features, matrix.dim, order, false, parallel);
    } else {
      floats_ = std::make_unique<PackedFeatures>(features, matrix.dim, order, parallel);
    }
  }

  void Scan(const RankSlots& slots, int64_t begin, int64_t end,
            const ShardStatistics& shard) const {
    ScoredRows(matrix_).ForEachPart(
        begin, end, [&](const ClassMatrix& rows, int64_t first, int64_t last) {
          if (pairs_ != nullptr) {
            const PairBuffers buffers(pairs_->panels().width);
            LARGEOUT_SIMD_DISPATCH(ScanPairStatistics, rows, pairs_->panels(), slots, first,
                                   last, buffers.scratch(), shard);
          } else {
            LARGEOUT_SIMD_DISPATCH(ScanStatistics, rows, floats_->panels(), slots, first, last,
                                   shard);
          }
        });
  }

  float One(int64_t example, int64_t class_id) const {
    float logit;
    ScoredRows scored(matrix_);
    const ClassMatrix rows = scored.Rows(class_id, class_id + 1);
    if (pairs_ != nullptr) {
      const PairBuffers buffers(pairs_->panels().width);
      LARGEOUT_SIMD_DISPATCH(OnePairLogit, rows, pairs_->panels(), example, class_id,
                             buffers.scratch(), &logit);
    } else {
      LARGEOUT_SIMD_DISPATCH(ScanOneLogit, rows, floats_->panels(), example, class_id, &logit);
    }
    return logit;
  }

 private:
  const ClassMatrix& matrix_;
  std::unique_ptr<PackedFeatures> floats_;
  std::unique_ptr<PairedFeatures> pairs_;
};

// The results of the shards, to be combined.
class Statistics {
 public:
  Statistics(int64_t num_shards, int64_t num_examples, int64_t num_places)
      : num_shards_(num_shards),
        num_examples_(num_examples),
        shift_(num_shards * num_examples, std::numeric_limits<float>::lowest()),
        total_(num_shards * num_examples, 0.0),
        higher_(num_places, 0) {}

  // Scans shards [begin, end). May be called from several threads.
  void Scan(const Logits& logits, const LabelSlots& labels, const ClassShards& shards,
            int64_t begin, int64_t end) {
    std::vector<int32_t> higher(labels.size(), 0);
    std::vector<float> limits(labels.most_in_panel() * kPanelExamples);
    std::unique_ptr<bool[]> label_in_block(new bool[limits.size()]);
    for (int64_t shard = begin; shard < end; ++shard) {
      const int64_t first = shard * num_examples_;
      const ShardStatistics found = {shift_.data() + first, total_.data() + first,
                                     higher.data(), limits.data(), label_in_block.get()};
      logits.Scan(labels.slots(), shards.begin(shard), shards.end(shard), found);
    }
    std::lock_guard<std::mutex> lock(mutex_);
    for (size_t i = 0; i < higher.size(); ++i) higher_[i] += higher[i];
  }

  float LogPartition(int64_t example) const {
    float shift = shift_[example];
    for (int64_t s = 1; s < num_shards_; ++s)
      shift = std::max(shift, shift_[s * num_examples_ + example]);
    double total = 0.0;
    for (int64_t i = example; i < num_shards_ * num_examples_; i += num_examples_) {
      total += total_[i] * std::exp(static_cast<double>(shift_[i]) - shift);
    }
    return static_cast<float>(shift + std::log(total));
  }

  int64_t higher(int64_t place) const { return higher_[place]; }

 private:
  const int64_t num_shards_, num_examples_;
  std::vector<float> shift_;
  std::vector<double> total_;
  std::mutex mutex_;
  std::vector<int64_t> higher_;
};

}  // namespace

void ClassStatistics(const ClassMatrix& matrix, const Features& features, const Labels& labels,
                     const ParallelFor& parallel, float* log_partition, float* true_logits,
                     int64_t* ranks, ProductNumbers numbers) {
  const int64_t batch = features.batch;
  const std::vector<int64_t> order = ExamplesByLabelCount(labels, batch);
  const Logits logits(matrix, features, order, numbers, parallel);
  const LabelSlots slots([&](int64_t example, int64_t id) { return logits.One(example, id); },
                         matrix.dim, labels, order, parallel);
  const ClassShards shards(matrix.num_classes, kMostShards);
  const int64_t num_examples = RoundUp(batch, kPanelExamples);
  Statistics found(shards.count(), num_examples, slots.size());
  const int64_t cost = shards.size() * num_examples * (matrix.dim / 16 + 4);
  parallel(shards.count(), cost,
           [&](int64_t begin, int64_t end) { found.Scan(logits, slots, shards, begin, end); });
  if (labels.logits != nullptr) true_logits = nullptr;
  if (true_logits != nullptr) std::fill_n(true_logits, batch * labels.width, 0.0f);
  std::fill_n(ranks, batch * labels.width, matrix.num_classes);
  parallel(batch, 20 * shards.count(), [&](int64_t begin, int64_t end) {
    for (int64_t example = begin; example < end; ++example) {
      log_partition[order[example]] = found.LogPartition(example);
      for (size_t slot = 0; slot < slots.labels(example).size(); ++slot) {
        const ExampleLabel& label = slots.labels(example)[slot];
        const int64_t at = order[example] * labels.width + label.column;
        if (true_logits != nullptr) true_logits[at] = label.score;
        if (IsRanked(label.score)) ranks[at] = found.higher(slots.Place(example, slot));
      }
    }
  });
}

void LabelLogits(const ClassMatrix& matrix, const Features& features, const Labels& labels,
                 const ParallelFor& parallel, float* true_logits, ProductNumbers numbers) {
  const int64_t batch = features.batch;
  const std::vector<int64_t> order = ExamplesByLabelCount(labels, batch);
  const Logits logits(matrix, features, order, numbers, parallel);
  parallel(batch, 4 * labels.width * matrix.dim, [&](int64_t begin, int64_t end) {
    for (int64_t example = begin; example < end; ++example) {
      const int64_t first = order[example] * labels.width;
      for (int64_t i = first; i < first + labels.width; ++i) {
        true_logits[i] = labels.ids[i] < 0 ? 0.0f : logits.One(example, labels.ids[i]);
      }
    }
  });
}

}  // namespace largeout
