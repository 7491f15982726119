// What a block keeps in shared memory on the way to the statistics.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_CLASS_STATISTICS_PARTS_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_CLASS_STATISTICS_PARTS_H_

#include <cmath>
#include <cstdint>

#include "custom_ops/core/class_scan/class_scan_types.h"
#include "custom_ops/cuda/class_tile.h"

namespace largeout {
namespace cuda {

// What is found on the way to the statistics. [batch, width] and [shards, batch].
struct StatisticsParts {
  float* scores;  // of the labels, NaN where there is nothing to rank
  int* higher;    // classes that stand before the label
  float* shift;   // the highest logit of a shard
  double* total;  // sum of exp(logit - shift)
};

// Sums of exponentials of the logits that a thread has seen of its rows. Sum i stands at
// i * kThreads in shared memory: the product needs the registers.
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

// The labels of a block's rows in shared memory, kSlots of each row at a time, and how many
// classes stand before them.
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

  // Labels from `slot`, NaN where there is none.
  LARGEOUT_DEVICE void Fill(int thread, int64_t slot) const {
    ForOwn(thread, slot, [&](int at, bool known, int64_t i) {
      scores_[at] = known ? parts_.scores[i] : NotANumber();
      rows_[at] = known ? labels_.Row(i) : 0;
      higher_[at] = 0;
    });
  }

  // Counts the logits of a tile that stand before the labels from `first_slot`.
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

  // Takes the counts of labels from `slot` to memory.
  LARGEOUT_DEVICE void Flush(int thread, int64_t slot) const {
    ForOwn(thread, slot, [&](int at, bool known, int64_t i) {
      if (known && higher_[at] > 0) AddToCounter(parts_.higher + i, higher_[at]);
    });
  }

 private:
  // The same thread fills and flushes a label.
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
  int* const rows_;  // of the matrix
  int* const higher_;
};

}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_CLASS_STATISTICS_PARTS_H_
