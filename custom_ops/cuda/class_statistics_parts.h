// Shared memory of the blocks that compute the statistics, and their partial results.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_CLASS_STATISTICS_PARTS_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_CLASS_STATISTICS_PARTS_H_

#include <cmath>
#include <cstdint>

#include "custom_ops/core/class_scan/class_scan_types.h"
#include "custom_ops/cuda/class_tile.h"

namespace largeout {
namespace cuda {

// Partial results: [batch, width] per label, [shards, batch] per example and shard.
struct StatisticsParts {
  float* scores;  // of the labels; NaN if the label cannot be ranked
  int* higher;    // number of classes that rank before the label
  float* shift;   // the highest logit of a shard
  double* total;  // sum of exp(logit - shift)
};

// The sums of exponentials over the logits that a thread has seen, per example of the tile. Sum
// i is at i * kThreads in shared memory, because the product needs the registers.
template <class Shape>
struct ExponentialSums {
  static constexpr int kSums = Shape::kTileRows * Shape::kThreads;
  static constexpr int kBytes = kSums * 12;

  double* total;
  float* shift;

  LARGEOUT_DEVICE ExponentialSums(int thread, char* shared)
      : total(reinterpret_cast<double*>(shared) + thread),
        shift(reinterpret_cast<float*>(shared + kSums * 8) + thread) {}

  LARGEOUT_DEVICE void Clear() const {
    LARGEOUT_UNROLL
    for (int i = 0; i < Shape::kTileRows; ++i) {
      total[i * Shape::kThreads] = 0;
      shift[i * Shape::kThreads] = kLowestFloat;
    }
  }

  LARGEOUT_DEVICE void Add(const TileSums<Shape>& logits) const {
    LARGEOUT_UNROLL
    for (int i = 0; i < Shape::kTileRows; ++i) {
      const float before = shift[i * Shape::kThreads], now = fmaxf(before, logits.Highest(i));
      double* const to = total + i * Shape::kThreads;
      float sum = 0;
      LARGEOUT_UNROLL
      for (int j = 0; j < Shape::kTileColumns; ++j) sum += expf(logits.at[i][j] - now);
      if (now > before) {
        *to *= expf(before - now);
        shift[i * Shape::kThreads] = now;
      }
      *to += sum;
    }
  }
};

// The labels of a block's examples in shared memory, kSlots per example at a time, and the
// number of classes that rank before them.
template <class Shape>
class LabelSlots {
 public:
  static constexpr int kSlots = 4;
  static constexpr int kAll = Shape::kRows * kSlots;
  static constexpr int kBytes = kAll * 12;

  LARGEOUT_DEVICE LabelSlots(const Labels& labels, const StatisticsParts& parts, int64_t batch,
                             int64_t first_row, char* shared)
      : labels_(labels),
        parts_(parts),
        batch_(batch),
        first_row_(first_row),
        scores_(reinterpret_cast<float*>(shared)),
        rows_(reinterpret_cast<int*>(scores_ + kAll)),
        higher_(rows_ + kAll) {}

  // Loads the labels from `slot` on; NaN if there is none.
  LARGEOUT_DEVICE void Fill(int thread, int64_t slot) const {
    ForOwn(thread, slot, [&](int at, bool known, int64_t i) {
      scores_[at] = known ? parts_.scores[i] : NotANumber();
      rows_[at] = known ? labels_.Row(i) : 0;
      higher_[at] = 0;
    });
  }

  // Counts the logits of a tile that rank before the labels from `first_slot` on.
  LARGEOUT_DEVICE void Count(const TileSums<Shape>& logits, int thread, int64_t first_class,
                             int64_t first_slot) const {
    const int64_t left = labels_.width - first_slot;
    const int slots = static_cast<int>(left < kSlots ? left : kSlots);
    const int group = Shape::RowGroup(thread), column_group = Shape::ColumnGroup(thread);
    LARGEOUT_UNROLL
    for (int i = 0; i < Shape::kTileRows; ++i) {
      const float top = logits.Highest(i);
      for (int slot = 0; slot < slots; ++slot) {
        const int at = Shape::Row(group, i) * kSlots + slot;
        const float score = scores_[at];
        if (!(top >= score)) continue;
        const int label = rows_[at] - static_cast<int>(first_class);
        int higher = 0;
        LARGEOUT_UNROLL
        for (int j = 0; j < Shape::kTileColumns; ++j) {
          const float logit = logits.at[i][j];
          const int column = Shape::Column(column_group, j);
          higher += column != label && (logit > score || (logit == score && column < label));
        }
        if (higher != 0) AddToCounter(higher_ + at, higher);
      }
    }
  }

  // Adds the counts of the labels from `slot` on to global memory.
  LARGEOUT_DEVICE void Flush(int thread, int64_t slot) const {
    ForOwn(thread, slot, [&](int at, bool known, int64_t i) {
      if (known && higher_[at] > 0) AddToCounter(parts_.higher + i, higher_[at]);
    });
  }

 private:
  // Both Fill and Flush use this, so a label belongs to the same thread in both.
  template <class Visit>
  LARGEOUT_DEVICE void ForOwn(int thread, int64_t slot, const Visit& visit) const {
    for (int at = thread; at < kAll; at += Shape::kThreads) {
      const int64_t row = first_row_ + at / kSlots, column = slot + at % kSlots;
      visit(at, row < batch_ && column < labels_.width, row * labels_.width + column);
    }
  }

  const Labels& labels_;
  const StatisticsParts& parts_;
  const int64_t batch_;
  const int64_t first_row_;
  float* const scores_;
  int* const rows_;  // their rows of the matrix
  int* const higher_;
};

}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_CLASS_STATISTICS_PARTS_H_
