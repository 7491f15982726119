#include "custom_ops/core/lsh/lsh_hash_panel.h"

#include <algorithm>
#include <vector>

#include "custom_ops/core/base/simd_level.h"
#include "custom_ops/core/lsh/lsh_hash_functions.h"

namespace largeout {
namespace {

// Replaces the empty values of one row of the panel by other values of the row, or by 0.
void BorrowValues(int64_t num_values, int32_t* values) {
  std::vector<int32_t> own(num_values);
  for (int64_t h = 0; h < num_values; ++h) own[h] = values[h * kHashRows];
  const bool all_empty = *std::max_element(own.begin(), own.end()) == kNoValue;
  for (int64_t h = 0; h < num_values; ++h) {
    if (own[h] != kNoValue) continue;
    values[h * kHashRows] = 0;
    if (all_empty) continue;
    values[h * kHashRows] = own[LenderOf(h, num_values, own.data())];
  }
}

}  // namespace

PanelHasher::PanelHasher(const HashFamily& family)
    : family_(family),
      num_values_(NumHashValues(family)),
      panel_dim_(family.kind == HashKind::kSimHash ? PaddedDim(family) : family.dim),
      panel_(panel_dim_ * kHashRows),
      scratch_(family.kind == HashKind::kSimHash ? 2 * panel_dim_ * kHashRows : 0),
      values_(num_values_ * kHashRows) {
  std::fill_n(panel_.get(), panel_dim_ * kHashRows, InPanel(0, AbsentFor(family.kind)));
}

const int32_t* PanelHasher::Values(const UpcomingRows& upcoming) {
  if (family_.kind == HashKind::kSimHash) {
    const ProjectionFunctions functions = {family_.functions, panel_dim_, num_values_};
    LARGEOUT_SIMD_DISPATCH(ProjectionValues, functions, panel_.get(), upcoming, scratch_.get(),
                           values_.get());
    return values_.get();
  }
  const BinFunctions functions = {family_.functions, static_cast<int32_t>(BinWidth(family_)),
                                  num_values_, family_.kind == HashKind::kDwta};
  bool any_empty = false;
  LARGEOUT_SIMD_DISPATCH(BinValues, functions, panel_.get(), upcoming, values_.get(),
                         &any_empty);
  for (int row = 0; any_empty && row < kHashRows; ++row) {
    BorrowValues(num_values_, values_.get() + row);
  }
  return values_.get();
}

}  // namespace largeout
