// What a block of threads does for the rows of row_update.h.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_ROW_UPDATE_BODY_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_ROW_UPDATE_BODY_H_

#include <cstdint>

#include "custom_ops/cuda/block.h"
#include "custom_ops/cuda/row_update.h"
#include "custom_ops/cuda/row_update_rules.h"

namespace largeout {
namespace cuda {

inline constexpr int kRowUpdateThreads = 256;
// For each thread a float, for each group of threads at most one RowNumbers.
inline constexpr int kRowUpdateSharedBytes = kRowUpdateThreads * 3 * sizeof(float);

// A group of 2^bits threads works on a row, thread t on the columns t, t + 2^bits, ...
inline int BitsOfGroup(int64_t dim) {
  int bits = 3;
  while (bits < 7 && (int64_t{1} << bits) < dim) ++bits;
  return bits;
}

// How many blocks go over `rows` rows.
inline int64_t RowUpdateBlocks(int64_t rows, int group_bits) {
  const int64_t groups = kRowUpdateThreads >> group_bits;
  return (rows + groups - 1) / groups;
}

// The sum of a column of the gradients of a segment, in input order.
LARGEOUT_DEVICE inline float SegmentSum(const MergedRows& merged, const float* values,
                                        int64_t dim, int64_t segment, int64_t column) {
  const int32_t end = merged.offsets[segment + 1];
  int32_t i = merged.offsets[segment];
  float sum = values[merged.positions[i] * dim + column];
#ifdef __CUDACC__
#pragma unroll 4
#endif
  for (++i; i < end; ++i) sum += values[merged.positions[i] * dim + column];
  return sum;
}

// Rule: see row_update_rules.h.
template <class Rule>
struct UpdateRowsBody {
  MergedRows merged;
  const float* values;
  int64_t dim;
  int group_bits;
  Rule rule;

  template <class Block>
  LARGEOUT_DEVICE void operator()(const Block& block, char* shared) const {
    auto* const squares = reinterpret_cast<float*>(shared);  // one a thread
    auto* const numbers = reinterpret_cast<RowNumbers*>(squares + block.size());
    Rule loaded = rule;
    loaded.Load();
    const bool starts_rows = loaded.StartsRows();
    const int64_t num_segments = *merged.num_segments;
    const int groups = block.size() >> group_bits;
    for (int64_t first = block.index() * groups; first < num_segments;
         first += block.num_blocks() * groups) {
      if (Rule::kNeedsMeanSquare) SumSquares(block, first, num_segments, squares);
      if (starts_rows) StartRows(block, loaded, first, num_segments, squares, numbers);
      block.ForEachThread([&](int thread) {
        const int64_t segment = first + (thread >> group_bits);
        if (segment >= num_segments) return;
        RowNumbers of_row = loaded.Defaults();
        if (starts_rows) of_row = numbers[thread >> group_bits];
        const int64_t row = merged.ids[segment] * dim;
        for (int64_t column = LaneOf(thread); column < dim; column += LaneOf(-1) + 1) {
          loaded.Update(of_row, row + column, SegmentSum(merged, values, dim, segment, column));
        }
      });
    }
  }

  // Number of a thread in its group; of thread -1, that of the last.
  LARGEOUT_DEVICE int LaneOf(int thread) const { return thread & ((1 << group_bits) - 1); }

  template <class Block>
  LARGEOUT_DEVICE void StartRows(const Block& block, const Rule& loaded, int64_t first,
                                 int64_t num_segments, const float* squares,
                                 RowNumbers* numbers) const {
    block.ForEachThread([&](int thread) {
      const int group = thread >> group_bits;
      if (LaneOf(thread) != 0 || first + group >= num_segments) return;
      const float mean_square =
          Rule::kNeedsMeanSquare ? squares[thread] / static_cast<float>(dim) : 0;
      numbers[group] = loaded.Start(merged.ids[first + group], mean_square);
    });
  }

  // squares[first thread of a group]: the sum of squares of the row's gradient.
  template <class Block>
  LARGEOUT_DEVICE void SumSquares(const Block& block, int64_t first, int64_t num_segments,
                                  float* squares) const {
    block.ForEachThread([&](int thread) {
      const int64_t segment = first + (thread >> group_bits);
      float sum = 0;
      if (segment < num_segments) {
        for (int64_t column = LaneOf(thread); column < dim; column += LaneOf(-1) + 1) {
          const float gradient = SegmentSum(merged, values, dim, segment, column);
          sum += gradient * gradient;
        }
      }
      squares[thread] = sum;
    });
    for (int half = 1 << (group_bits - 1); half > 0; half >>= 1) {
      block.ForEachThread([&](int thread) {
        if (LaneOf(thread) < half) squares[thread] += squares[thread + half];
      });
    }
  }
};

template <class Index>
struct SumRowsBody {
  MergedRows merged;
  const float* values;
  int64_t dim;
  int group_bits;
  float* sums;
  Index* ids;

  template <class Block>
  LARGEOUT_DEVICE void operator()(const Block& block, char*) const {
    const int64_t num_segments = *merged.num_segments;
    const int groups = block.size() >> group_bits;
    const int width = 1 << group_bits;
    for (int64_t first = block.index() * groups; first < merged.num_ids;
         first += block.num_blocks() * groups) {
      block.ForEachThread([&](int thread) {
        const int64_t row = first + (thread >> group_bits);
        if (row >= merged.num_ids) return;
        const bool is_segment = row < num_segments;
        const int lane = thread & (width - 1);
        if (lane == 0) ids[row] = is_segment ? static_cast<Index>(merged.ids[row]) : Index{-1};
        for (int64_t column = lane; column < dim; column += width) {
          sums[row * dim + column] =
              is_segment ? SegmentSum(merged, values, dim, row, column) : 0;
        }
      });
    }
  }
};

}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_ROW_UPDATE_BODY_H_
