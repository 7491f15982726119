// The kernels of class_statistics.cu.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_CLASS_STATISTICS_BODY_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_CLASS_STATISTICS_BODY_H_

#include <cmath>
#include <cstdint>

#include "custom_ops/core/class_scan/class_scan_types.h"
#include "custom_ops/core/class_scan/score_order.h"
#include "custom_ops/cuda/class_logits.h"
#include "custom_ops/cuda/class_scan_plan.h"
#include "custom_ops/cuda/class_statistics_parts.h"

namespace largeout {
namespace cuda {

// Item i: the logit of label i of the batch; 0 for padding, NaN for an id out of range.
struct LabelLogitsBody {
  ClassMatrix matrix;
  Features features;
  Labels labels;
  float* true_logits;

  LARGEOUT_DEVICE void operator()(int64_t i) const {
    true_logits[i] = labels.ids[i] == -1 ? 0.0f : Computed(i);
  }

 private:
  LARGEOUT_DEVICE float Computed(int64_t i) const {
    const int64_t id = labels.ids[i];
    const float* const feature = features.data + i / labels.width * matrix.dim;
    const bool known = id >= 0 && id < matrix.num_classes;
    return known ? OneLogit(matrix, feature, id) : NotANumber();
  }
};

// Item i: the logit, given or computed, by which label i of the batch is ranked.
struct LabelScoresBody {
  Labels labels;
  StatisticsParts parts;
  const float* true_logits;

  LARGEOUT_DEVICE void operator()(int64_t i) const {
    const float* logits = labels.logits != nullptr ? labels.logits : true_logits;
    const bool ranked = labels.ids[i] >= 0 && IsRanked(logits[i]);
    parts.scores[i] = ranked ? logits[i] : NotANumber();
    parts.higher[i] = 0;
  }
};

// A block computes the sums of exponentials, and counts the classes that rank before each
// label, for one tile of examples and one shard.
template <class Shape>
struct StatisticsBody {
  ClassMatrix matrix;
  Features features;
  Labels labels;
  ScanPlan plan;
  StatisticsParts parts;

  using Sums = ExponentialSums<Shape>;
  using Slots = LabelSlots<Shape>;
  static constexpr int kThreads = Shape::kThreads;
  static constexpr int kBlocksTogether = Shape::kBlocksTogether;

  // Shared memory: that of the product, of the sums, and of the label slots.
  static constexpr int kProductBytes = 4 * kProductFloats<Shape>;
  static constexpr int kSharedBytes = kProductBytes + Sums::kBytes + Slots::kBytes;
  static_assert(kProductBytes % 8 == 0 && kSharedBytes <= 48 * 1024, "fits any GPU");

  template <class Block>
  LARGEOUT_DEVICE void operator()(const Block& block, char* shared) const {
    const int64_t step = block.num_blocks();
    for (int64_t item = block.index(); item < plan.blocks(); item += step) {
      Scan(block, item, shared);
    }
  }

 private:
  template <class Block>
  LARGEOUT_DEVICE void Scan(const Block& block, int64_t item, char* shared) const {
    const int64_t shard = plan.shard(item), first_row = plan.row_tile(item) * Shape::kRows;
    char* const sums = shared + kProductBytes;
    const Slots slots(labels, parts, plan.batch, first_row, sums + Sums::kBytes);
    const bool at_once = labels.width <= Slots::kSlots;
    block.ForEachThread([&](int thread) {
      Sums(thread, sums).Clear();
      slots.Fill(thread, 0);
    });
    ClassLogits<Shape, Block> logits(block, reinterpret_cast<float*>(shared));
    for (int64_t c = plan.begin(shard); c < plan.end(shard); c += Shape::kColumns) {
      logits.Compute(matrix, features, first_row, c);
      block.ForEachThread([&](int thread) { Sums(thread, sums).Add(logits.tile()[thread]); });
      for (int64_t slot = 0; slot < labels.width; slot += Slots::kSlots) {
        if (!at_once) block.ForEachThread([&](int thread) { slots.Fill(thread, slot); });
        block.ForEachThread(
            [&](int thread) { slots.Count(logits.tile()[thread], thread, c, slot); });
        if (!at_once) block.ForEachThread([&](int thread) { slots.Flush(thread, slot); });
      }
    }
    block.ForEachThread([&](int thread) {
      if (at_once) slots.Flush(thread, 0);
    });
    Reduce(block, shard * plan.batch + first_row, plan.batch - first_row, sums);
  }

  // Adds the sums of all threads for each example, in the order of the threads.
  template <class Block>
  LARGEOUT_DEVICE void Reduce(const Block& block, int64_t place, int64_t rows_left,
                              char* shared) const {
    constexpr int kGroups = Shape::kColumnGroups;
    block.ForEachThread([&](int thread) {
      for (int at = thread; at < Shape::kRows; at += kThreads) {
        const int group = at / Shape::kTileRows, i = at % Shape::kTileRows;
        const int row = Shape::Row(group, i);
        if (row >= rows_left) continue;
        const Sums sums(group * kGroups + i * kThreads, shared);
        float shift = kLowestFloat;
        for (int g = 0; g < kGroups; ++g) shift = fmaxf(shift, sums.shift[g]);
        double total = 0;
        for (int g = 0; g < kGroups; ++g) {
          total += sums.total[g] * exp(static_cast<double>(sums.shift[g]) - shift);
        }
        parts.shift[place + row] = shift;
        parts.total[place + row] = total;
      }
    });
  }
};

// The log partition of each example. Each of kLanes threads adds every kLanes-th shard, and
// their sums are added in order.
struct LogPartitionBody {
  ScanPlan plan;
  StatisticsParts parts;
  float* log_partition;

  static constexpr int kThreads = 256, kLanes = 32, kRows = kThreads / kLanes;
  static constexpr int kSharedBytes = kThreads * 12;

  template <class Block>
  LARGEOUT_DEVICE void operator()(const Block& block, char* shared) const {
    double* const totals = reinterpret_cast<double*>(shared);
    float* const shifts = reinterpret_cast<float*>(totals + kThreads);
    for (int64_t first = block.index() * kRows; first < plan.batch;
         first += block.num_blocks() * kRows) {
      block.ForEachThread([&](int thread) {
        float shift = kLowestFloat;
        ForShards(first, thread, [&](int64_t i) { shift = fmaxf(shift, parts.shift[i]); });
        shifts[thread] = shift;
      });
      block.ForEachThread([&](int thread) {
        const double shift = Highest(shifts, thread % kRows);
        double total = 0;
        ForShards(first, thread,
                  [&](int64_t i) { total += parts.total[i] * exp(parts.shift[i] - shift); });
        totals[thread] = total;
      });
      block.ForEachThread([&](int thread) {
        if (thread >= kRows || first + thread >= plan.batch) return;
        double total = 0;
        for (int lane = 0; lane < kLanes; ++lane) total += totals[lane * kRows + thread];
        log_partition[first + thread] =
            static_cast<float>(Highest(shifts, thread) + log(total));
      });
    }
  }

 private:
  // Visits the thread's shards. Neighbouring threads read neighbouring examples.
  template <class Visit>
  LARGEOUT_DEVICE void ForShards(int64_t first, int thread, const Visit& visit) const {
    const int64_t row = first + thread % kRows;
    if (row >= plan.batch) return;
    for (int64_t shard = thread / kRows; shard < plan.shards; shard += kLanes) {
      visit(shard * plan.batch + row);
    }
  }

  LARGEOUT_DEVICE static float Highest(const float* shifts, int row) {
    float highest = kLowestFloat;
    for (int lane = 0; lane < kLanes; ++lane) {
      highest = fmaxf(highest, shifts[lane * kRows + row]);
    }
    return highest;
  }
};

// Item i: the rank of label i of the batch.
struct RanksBody {
  int64_t num_classes;
  StatisticsParts parts;
  int64_t* ranks;

  LARGEOUT_DEVICE void operator()(int64_t i) const {
    const bool ranked = parts.scores[i] == parts.scores[i];
    ranks[i] = ranked ? parts.higher[i] : num_classes;
  }
};

}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_CLASS_STATISTICS_BODY_H_
