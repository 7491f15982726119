// The block body of row_update.h.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_ROW_UPDATE_BODY_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_ROW_UPDATE_BODY_H_

#include <cstdint>

#include "custom_ops/cuda/block.h"
#include "custom_ops/cuda/row_sums.h"
#include "custom_ops/cuda/row_update.h"
#include "custom_ops/cuda/row_update_rules.h"

namespace largeout {
namespace cuda {

inline constexpr int kColumnsAtOnce = GradientTerms::kColumnsAtOnce;
inline constexpr int kRowUpdateSharedBytes =
    kRowThreads * sizeof(float) + kRowsPerBlock * sizeof(RowNumbers);

// Rule: see row_update_rules.h.
template <class Rule>
struct UpdateRowsBody {
  MergedRows merged;
  GradientTerms terms;
  Rule rule;

  // Limits the registers, so that enough threads have loads in flight.
  static constexpr int kThreads = kRowThreads, kBlocksTogether = 4;

  template <class Block>
  LARGEOUT_DEVICE void operator()(const Block& block, char* shared) const {
    auto* const squares = reinterpret_cast<float*>(shared);  // one per thread
    auto* const numbers = reinterpret_cast<RowNumbers*>(squares + kRowThreads);
    Rule loaded = rule;
    loaded.Load();
    const bool starts_rows = loaded.StartsRows();
    const int64_t num_segments = *merged.num_segments;
    for (int64_t first = block.index() * kRowsPerBlock; first < num_segments;
         first += block.num_blocks() * kRowsPerBlock) {
      if (Rule::kNeedsMeanSquare) SumSquares(block, first, num_segments, squares);
      if (starts_rows) StartRows(block, loaded, first, num_segments, squares, numbers);
      block.ForEachThread([&](int thread) {
        const int group = thread / kGroup;
        if (first + group >= num_segments) return;
        const RowNumbers of_row = starts_rows ? numbers[group] : loaded.Defaults();
        UpdateRow(loaded, of_row, first + group, thread % kGroup);
      });
    }
  }

  LARGEOUT_DEVICE void UpdateRow(const Rule& loaded, RowNumbers of_row, int64_t segment,
                                 int lane) const {
    const int64_t dim = terms.width, row = merged.ids[segment] * dim;
    for (int64_t column = lane; column < dim; column += kColumnsAtOnce * kGroup) {
      typename Rule::Values at_columns[kColumnsAtOnce] = {};
      float gradients[kColumnsAtOnce];
      LARGEOUT_UNROLL
      for (int k = 0; k < kColumnsAtOnce; ++k) {
        const int64_t at = column + k * kGroup;
        if (at < dim) at_columns[k] = loaded.Read(row + at);
      }
      SumSegment(merged, terms, segment, column, gradients);
      LARGEOUT_UNROLL
      for (int k = 0; k < kColumnsAtOnce; ++k) {
        const int64_t at = column + k * kGroup;
        if (at >= dim) continue;
        loaded.Step(of_row, gradients[k], &at_columns[k]);
        loaded.Write(at_columns[k], row + at);
      }
    }
  }

  template <class Block>
  LARGEOUT_DEVICE void StartRows(const Block& block, const Rule& loaded, int64_t first,
                                 int64_t num_segments, const float* squares,
                                 RowNumbers* numbers) const {
    block.ForEachThread([&](int thread) {
      const int group = thread / kGroup;
      if (thread % kGroup != 0 || first + group >= num_segments) return;
      const float mean_square =
          Rule::kNeedsMeanSquare ? squares[thread] / static_cast<float>(terms.width) : 0;
      numbers[group] = loaded.Start(merged.ids[first + group], mean_square);
    });
  }

  // squares[first thread of a group] = the sum of squares of the row's gradient.
  template <class Block>
  LARGEOUT_DEVICE void SumSquares(const Block& block, int64_t first, int64_t num_segments,
                                  float* squares) const {
    block.ForEachThread([&](int thread) {
      const int64_t segment = first + (thread / kGroup);
      float sum = 0;
      if (segment < num_segments) {
        for (int64_t column = thread % kGroup; column < terms.width;
             column += kColumnsAtOnce * kGroup) {
          float gradients[kColumnsAtOnce];
          SumSegment(merged, terms, segment, column, gradients);
          LARGEOUT_UNROLL
          for (int k = 0; k < kColumnsAtOnce; ++k) sum += gradients[k] * gradients[k];
        }
      }
      squares[thread] = sum;
    });
    for (int half = kGroup / 2; half > 0; half /= 2) {
      block.ForEachThread([&](int thread) {
        if (thread % kGroup < half) squares[thread] += squares[thread + half];
      });
    }
  }
};

}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_ROW_UPDATE_BODY_H_
