// The kernels of class_statistics.cu.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_CLASS_STATISTICS_BODY_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_CLASS_STATISTICS_BODY_H_

#include <cmath>
#include <cstdint>

#include "custom_ops/core/class_scan_types.h"
#include "custom_ops/cuda/class_logits.h"
#include "custom_ops/cuda/class_scan_plan.h"

namespace largeout {
namespace cuda {

// What is found on the way to the statistics. [batch, width] and [shards, batch].
struct StatisticsParts {
  float* scores;  // of the labels, NaN where there is nothing to rank
  int* higher;    // classes that stand before the label
  float* shift;   // the highest logit of a shard
  double* total;  // sum of exp(logit - shift)
};

// Item i: the logit of label i of the batch.
struct LabelLogitsBody {
  ClassMatrix matrix;
  Features features;
  Labels labels;
  StatisticsParts parts;
  float* true_logits;

  LARGEOUT_DEVICE void operator()(int64_t i) const {
    const int64_t id = labels.ids[i];
    const float* const feature = features.data + i / labels.width * matrix.dim;
    const bool known = id >= 0 && id < matrix.num_classes;
    const float logit = known ? OneLogit(matrix, feature, id) : NotANumber();
    true_logits[i] = id == -1 ? 0.0f : logit;
    parts.scores[i] = logit > MinusInfinity() ? logit : NotANumber();
    parts.higher[i] = 0;
  }
};

// Sum of exponentials of the logits that a thread has seen of its rows.
template <class Shape>
struct ExponentialSums {
  float shift[Shape::kTileRows];
  double total[Shape::kTileRows];

  LARGEOUT_DEVICE void Clear() {
    LARGEOUT_UNROLL
    for (int i = 0; i < Shape::kTileRows; ++i) {
      shift[i] = kLowestFloat;
      total[i] = 0;
    }
  }

  LARGEOUT_DEVICE void Add(int i, const float* logits, float top) {
    if (top > shift[i]) {
      total[i] *= expf(shift[i] - top);
      shift[i] = top;
    }
    float sum = 0;
    LARGEOUT_UNROLL
    for (int j = 0; j < Shape::kTileColumns; ++j) sum += expf(logits[j] - shift[i]);
    total[i] += sum;
  }
};

// Sums of exponentials, and the classes before each label, of one tile of rows in one
// shard a block.
template <class Shape>
struct StatisticsBody {
  ClassMatrix matrix;
  Features features;
  Labels labels;
  ScanPlan plan;
  StatisticsParts parts;

  static constexpr int kThreads = Shape::kThreads, kBlocksTogether = 2;
  static constexpr int kGroups = Shape::kColumnGroups;
  static constexpr int kSharedSlots = 8;  // labels a row that are counted in shared memory
  static constexpr int kCounters = Shape::kRows * kSharedSlots;

  // One after the other; the totals take the place of the product.
  static constexpr int kProductBytes = 4 * kProductFloats<Shape>;
  static constexpr int kMaximaBytes = kGroups * Shape::kRows * 4;
  static constexpr int kSharedBytes = kProductBytes + kMaximaBytes + kCounters * 4;
  static_assert(kGroups * Shape::kRows * 8 <= kProductBytes, "room for the totals");

  template <class Block>
  LARGEOUT_DEVICE void operator()(const Block& block, char* shared) const {
    const int64_t step = block.num_blocks();
    for (int64_t item = block.index(); item < plan.blocks(); item += step) {
      Scan(block, item, shared);
    }
  }

 private:
  LARGEOUT_DEVICE static float* Maxima(char* shared) {
    return reinterpret_cast<float*>(shared + kProductBytes);
  }
  LARGEOUT_DEVICE static int* Counters(char* shared) {
    return reinterpret_cast<int*>(shared + kProductBytes + kMaximaBytes);
  }

  template <class Block>
  LARGEOUT_DEVICE void Scan(const Block& block, int64_t item, char* shared) const {
    const int64_t shard = plan.shard(item), first_row = plan.row_tile(item) * Shape::kRows;
    int* const counters = Counters(shared);
    typename Block::template PerThread<ExponentialSums<Shape>> sums(block);
    block.ForEachThread([&](int thread) {
      sums[thread].Clear();
      for (int i = thread; i < kCounters; i += Shape::kThreads) counters[i] = 0;
    });
    ClassLogits<Shape, Block> logits(block, reinterpret_cast<float*>(shared));
    for (int64_t c = plan.begin(shard); c < plan.end(shard); c += Shape::kColumns) {
      logits.Compute(matrix, features, first_row, c);
      block.ForEachThread([&](int thread) {
        UseTile(logits.tile()[thread], thread, first_row, c, counters, &sums[thread]);
      });
    }
    FlushCounters(block, first_row, counters);
    Reduce(block, shard * plan.batch + first_row, plan.batch - first_row, &sums, shared);
  }

  LARGEOUT_DEVICE void UseTile(const TileSums<Shape>& logits, int thread, int64_t first_row,
                               int64_t first_class, int* counters,
                               ExponentialSums<Shape>* sums) const {
    const int group = Shape::RowGroup(thread);
    LARGEOUT_UNROLL
    for (int i = 0; i < Shape::kTileRows; ++i) {
      float top = MinusInfinity();
      LARGEOUT_UNROLL
      for (int j = 0; j < Shape::kTileColumns; ++j) {
        top = logits.at[i][j] > top ? logits.at[i][j] : top;
      }
      sums->Add(i, logits.at[i], top);
      const int row = Shape::Row(group, i);
      if (first_row + row >= plan.batch) continue;
      const float* const scores = parts.scores + (first_row + row) * labels.width;
      for (int64_t slot = 0; slot < labels.width; ++slot) {
        if (!(top >= scores[slot])) continue;
        const int64_t at = (first_row + row) * labels.width + slot;
        const int higher = CountHigher(logits.at[i], Shape::ColumnGroup(thread), first_class,
                                       scores[slot], labels.ids[at]);
        if (higher == 0) continue;
        const bool near = slot < kSharedSlots;
        AddToCounter(near ? counters + row * kSharedSlots + slot : parts.higher + at, higher);
      }
    }
  }

  // Classes of the tile that stand before the label.
  LARGEOUT_DEVICE static int CountHigher(const float* logits, int column_group,
                                         int64_t first_class, float score, int64_t label) {
    int higher = 0;
    LARGEOUT_UNROLL
    for (int j = 0; j < Shape::kTileColumns; ++j) {
      const int64_t id = first_class + Shape::Column(column_group, j);
      higher += id != label && (logits[j] > score || (logits[j] == score && id < label));
    }
    return higher;
  }

  template <class Block>
  LARGEOUT_DEVICE void FlushCounters(const Block& block, int64_t first_row,
                                     const int* counters) const {
    block.ForEachThread([&](int thread) {
      for (int i = thread; i < kCounters; i += Shape::kThreads) {
        const int64_t row = first_row + i / kSharedSlots, slot = i % kSharedSlots;
        if (row < plan.batch && slot < labels.width && counters[i] > 0) {
          AddToCounter(parts.higher + row * labels.width + slot, counters[i]);
        }
      }
    });
  }

  // Puts the sums of all threads of each row together, in order of the threads.
  template <class Block, class Sums>
  LARGEOUT_DEVICE void Reduce(const Block& block, int64_t place, int64_t rows_left, Sums* sums,
                              char* shared) const {
    float* const maxima = Maxima(shared);
    double* const totals = reinterpret_cast<double*>(shared);
    block.ForEachThread([&](int thread) {
      const int group = Shape::RowGroup(thread), column = Shape::ColumnGroup(thread);
      LARGEOUT_UNROLL
      for (int i = 0; i < Shape::kTileRows; ++i) {
        const int at = column * Shape::kRows + Shape::Row(group, i);
        maxima[at] = (*sums)[thread].shift[i];
        totals[at] = (*sums)[thread].total[i];
      }
    });
    block.ForEachThread([&](int row) {
      if (row >= Shape::kRows || row >= rows_left) return;
      float shift = kLowestFloat;
      for (int g = 0; g < kGroups; ++g) {
        shift = fmaxf(shift, maxima[g * Shape::kRows + row]);
      }
      double total = 0;
      for (int g = 0; g < kGroups; ++g) {
        const int at = g * Shape::kRows + row;
        total += totals[at] * exp(static_cast<double>(maxima[at]) - shift);
      }
      parts.shift[place + row] = shift;
      parts.total[place + row] = total;
    });
  }
};

// The log partition of each row: kLanes threads of a block take every so many shards of a row,
// and their sums are added in order.
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
  // The places of the thread's shards. Neighbouring threads have neighbouring rows.
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
