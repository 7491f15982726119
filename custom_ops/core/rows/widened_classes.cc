#include "custom_ops/core/rows/widened_classes.h"

#include "custom_ops/core/base/bfloat16_rows.h"
#include "custom_ops/core/rows/row_merge.h"

namespace largeout {
namespace {

constexpr int64_t kCyclesPerFloat = 1;

}  // namespace

WidenedClasses::WidenedClasses(const ClassMatrix& matrix, const OwnClasses& own,
                               const SharedClasses& shared, const ParallelFor& parallel)
    : batch_(own.batch),
      per_row_(own.per_row),
      dim_(matrix.dim),
      has_bias_(matrix.bias != nullptr),
      own_ids_(own.size(), -1),
      shared_ids_(shared.size) {
  const MergedRows merged = MergeClasses(own, shared, parallel);
  rows_.resize(merged.size() * dim_);
  if (has_bias_) bias_.resize(merged.size());
  parallel(merged.size(), 2 * dim_ * kCyclesPerFloat, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      WidenRow(matrix.bfloat16_rows + merged.ids[i] * dim_, dim_, rows_.data() + i * dim_);
      if (has_bias_) bias_[i] = matrix.bias[merged.ids[i]];
      for (int64_t p = merged.offsets[i]; p < merged.offsets[i + 1]; ++p) {
        const int64_t position = merged.positions[p];
        (position < own.size() ? own_ids_[position] : shared_ids_[position - own.size()]) = i;
      }
    }
  });
}

ClassMatrix WidenedClasses::matrix() const {
  const int64_t num_classes = dim_ == 0 ? 0 : static_cast<int64_t>(rows_.size()) / dim_;
  return {rows_.data(), has_bias_ ? bias_.data() : nullptr, num_classes, dim_};
}

}  // namespace largeout
