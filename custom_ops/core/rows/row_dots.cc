#include "custom_ops/core/rows/row_dots.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "custom_ops/core/base/simd_level.h"
#include "custom_ops/core/rows/row_dots_simd.h"
#include "custom_ops/core/rows/row_runs.h"

namespace largeout {
namespace {

// A thread reads scattered rows from memory at about one float per cycle.
constexpr int64_t kCyclesPerFloat = 1;

DotExamples DotExamplesOf(const OwnClasses& own) {
  return {own.ids, own.per_row, std::numeric_limits<float>::lowest()};
}

void SumBiases(const MergedRows& merged, const RowDotsGradients& gradients,
               const OwnClasses& own, int64_t begin, int64_t end, float* d_biases) {
  for (int64_t s = begin; s < end; ++s) {
    float sum = 0, run = 0;
    for (int64_t i = merged.offsets[s]; i < merged.offsets[s + 1]; ++i) {
      const int64_t position = merged.positions[i];
      run += position < own.size() ? gradients.d_logits[position]
                                   : gradients.d_shared_biases[position - own.size()];
      if ((i + 1 - merged.offsets[s]) % kRunLength == 0) sum += std::exchange(run, 0.0f);
    }
    d_biases[s] = sum + run;
  }
}

}  // namespace

void RowDots(const ClassMatrix& matrix, const float* features, const OwnClasses& own,
             const ParallelFor& parallel, float* logits) {
  const int64_t cost = own.per_row * matrix.dim * kCyclesPerFloat;
  parallel(own.batch, cost, [&](int64_t begin, int64_t end) {
    LARGEOUT_SIMD_DISPATCH(DotOwnClasses, matrix, DotExamplesOf(own), features, begin, end,
                           logits);
  });
}

void GatherRows(const ClassMatrix& matrix, const SharedClasses& shared,
                const ParallelFor& parallel, float* rows, float* biases) {
  const int64_t cost = 2 * matrix.dim * kCyclesPerFloat;
  parallel(shared.size, cost, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const float* row = matrix.embeddings + shared.ids[i] * matrix.dim;
      std::copy_n(row, matrix.dim, rows + i * matrix.dim);
      if (matrix.bias != nullptr) biases[i] = matrix.bias[shared.ids[i]];
    }
  });
}

void RowDotsFeatureGradient(const ClassMatrix& matrix, const OwnClasses& own,
                            const float* d_logits, const ParallelFor& parallel,
                            float* d_features) {
  const int64_t cost = (own.per_row + 1) * matrix.dim * kCyclesPerFloat;
  parallel(own.batch, cost, [&](int64_t begin, int64_t end) {
    LARGEOUT_SIMD_DISPATCH(SumOwnClasses, matrix, DotExamplesOf(own), d_logits, begin, end,
                           d_features);
  });
}

MergedRows MergeClasses(const OwnClasses& own, const SharedClasses& shared,
                        const ParallelFor& parallel) {
  return MergeRows(own.ids, own.size(), parallel, shared.ids, shared.size);
}

void RowDotsRowGradient(const MergedRows& merged, const RowDotsGradients& gradients,
                        const OwnClasses& own, int64_t dim, const ParallelFor& parallel,
                        float* d_rows, float* d_biases) {
  if (merged.size() == 0) return;
  const DotSegments segments{merged.offsets.data(),
                             merged.positions.data(),
                             own.size(),
                             own.per_row,
                             dim,
                             gradients.features,
                             gradients.d_logits,
                             gradients.d_shared_rows};
  const int64_t terms = merged.offsets.back() / merged.size() + 1;
  parallel(merged.size(), terms * dim * kCyclesPerFloat, [&](int64_t begin, int64_t end) {
    LARGEOUT_SIMD_DISPATCH(SumDotSegments, segments, begin, end, d_rows);
    if (d_biases != nullptr) SumBiases(merged, gradients, own, begin, end, d_biases);
  });
}

}  // namespace largeout
