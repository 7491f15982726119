#include "custom_ops/core/optimizers/row_update.h"

#include <vector>

#include "custom_ops/core/base/simd_level.h"

namespace largeout {
namespace {

// A thread moves about one byte per cycle if rows are far apart.
constexpr int64_t kCyclesPerFloat = 8;

RowSegments SegmentsOf(const MergedRows& merged, const float* values, int64_t dim,
                       const RoundedRows& rounded = {}) {
  return {
      merged.ids.data(), merged.offsets.data(), merged.positions.data(), values, dim, rounded};
}

// Calls work(begin, end, buffer) on ranges of segments. `buffer` is scratch for three rows.
template <typename Work>
void ForSegments(const MergedRows& merged, int64_t dim, const ParallelFor& parallel_for,
                 const Work& work) {
  if (merged.size() == 0) return;
  const int64_t gradients = static_cast<int64_t>(merged.positions.size());
  const int64_t floats = dim * (gradients / merged.size() + 4);
  parallel_for(merged.size(), floats * kCyclesPerFloat, [&](int64_t begin, int64_t end) {
    std::vector<float> buffer(3 * dim);
    work(begin, end, buffer.data());
  });
}

}  // namespace

void UpdateRows(const MergedRows& merged, const float* values, int64_t dim,
                const AdamArguments& arguments, const ParallelFor& parallel_for,
                const RoundedRows& rounded) {
  const RowSegments segments = SegmentsOf(merged, values, dim, rounded);
  ForSegments(merged, dim, parallel_for, [&](int64_t begin, int64_t end, float* buffer) {
    LARGEOUT_SIMD_DISPATCH(RowAdam, segments, arguments, begin, end, buffer);
  });
}

void UpdateRows(const MergedRows& merged, const float* values, int64_t dim,
                const AdagradArguments& arguments, const ParallelFor& parallel_for,
                const RoundedRows& rounded) {
  const RowSegments segments = SegmentsOf(merged, values, dim, rounded);
  ForSegments(merged, dim, parallel_for, [&](int64_t begin, int64_t end, float* buffer) {
    LARGEOUT_SIMD_DISPATCH(RowAdagrad, segments, arguments, begin, end, buffer);
  });
}

void UpdateRows(const MergedRows& merged, const float* values, int64_t dim,
                const RowwiseAdagradArguments& arguments, const ParallelFor& parallel_for,
                const RoundedRows& rounded) {
  const RowSegments segments = SegmentsOf(merged, values, dim, rounded);
  ForSegments(merged, dim, parallel_for, [&](int64_t begin, int64_t end, float* buffer) {
    LARGEOUT_SIMD_DISPATCH(RowRowwiseAdagrad, segments, arguments, begin, end, buffer);
  });
}

void UpdateRows(const MergedRows& merged, const float* values, int64_t dim,
                const MomentumArguments& arguments, const ParallelFor& parallel_for,
                const RoundedRows& rounded) {
  const RowSegments segments = SegmentsOf(merged, values, dim, rounded);
  ForSegments(merged, dim, parallel_for, [&](int64_t begin, int64_t end, float* buffer) {
    LARGEOUT_SIMD_DISPATCH(RowMomentum, segments, arguments, begin, end, buffer);
  });
}

void SumRows(const MergedRows& merged, const float* values, int64_t dim, float* sums,
             const ParallelFor& parallel_for) {
  const RowSegments segments = SegmentsOf(merged, values, dim);
  ForSegments(merged, dim, parallel_for, [&](int64_t begin, int64_t end, float* buffer) {
    LARGEOUT_SIMD_DISPATCH(SumSegments, segments, sums, begin, end, buffer);
  });
}

}  // namespace largeout
