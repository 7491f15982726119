#include "custom_ops/core/lsh_hash_panel.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "custom_ops/core/lsh_hash_functions.h"
#include "custom_ops/core/simd_level.h"

namespace largeout {
namespace {

// Calls found(j) on numbers j < num_values, in an order that depends on h and
// num_values only, until it returns true. Visits all of them.
template <class Found>
void ProbeValues(int64_t h, int64_t num_values, const Found& found) {
  uint64_t mask = 0;
  while (mask + 1 < static_cast<uint64_t>(num_values)) mask = 2 * mask + 1;
  const uint64_t mixed = static_cast<uint64_t>(h + 1) * 0x9E3779B97F4A7C15u;
  const uint64_t start = mixed >> 40, stride = mixed >> 8 | 1;
  for (uint64_t probe = 0; probe <= mask; ++probe) {
    const int64_t j = static_cast<int64_t>((start + probe * stride) & mask);
    if (j < num_values && found(j)) return;
  }
}

// Gives the empty values of one row of the panel those of other ones, or 0.
void BorrowValues(int64_t num_values, int32_t* values) {
  std::vector<int32_t> own(num_values);
  for (int64_t h = 0; h < num_values; ++h) own[h] = values[h * kHashRows];
  const bool all_empty = *std::max_element(own.begin(), own.end()) == kNoValue;
  for (int64_t h = 0; h < num_values; ++h) {
    if (own[h] != kNoValue) continue;
    values[h * kHashRows] = 0;
    if (all_empty) continue;
    ProbeValues(h, num_values, [&](int64_t j) {
      if (own[j] == kNoValue) return false;
      values[h * kHashRows] = own[j];
      return true;
    });
  }
}

}  // namespace

AbsentNumbers AbsentFor(HashKind kind) {
  switch (kind) {
    case HashKind::kWta:
      return AbsentNumbers::kNan;
    case HashKind::kDwta:
      return AbsentNumbers::kNanAndZero;
    default:
      return AbsentNumbers::kNone;
  }
}

float InPanel(float number, AbsentNumbers absent) {
  const bool counts = absent == AbsentNumbers::kNone || number > 0 || number < 0 ||
                      (number == 0 && absent == AbsentNumbers::kNan);
  return counts ? number : -std::numeric_limits<float>::infinity();
}

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
