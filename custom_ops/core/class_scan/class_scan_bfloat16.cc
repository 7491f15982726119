#include "custom_ops/core/class_scan/class_scan_bfloat16.h"

#include <algorithm>
#include <cstring>

#include "custom_ops/core/base/rounding.h"

namespace largeout {
namespace {

Pair PairOf(float even, float odd) {
  return RoundToBfloat16(even) | Pair{RoundToBfloat16(odd)} << 16;
}

}  // namespace

uint16_t RoundToBfloat16(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  if (x != x) return static_cast<uint16_t>(bits >> 16 | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

PairedFeatures::PairedFeatures(const Features& features, int64_t dim,
                               const std::vector<int64_t>& order, bool for_gradient,
                               const ParallelFor& parallel)
    : data_(CeilDiv(features.batch, kPanelRows) * kPanelRows * RoundUp(dim, kPairDepth) / 2),
      by_rows_(for_gradient ? CeilDiv(features.batch, kPanelRows) * kPanelRows *
                                  RoundUp(dim, kPairDepth) / 2
                            : 0),
      panels_{data_.get(),    for_gradient ? by_rows_.get() : nullptr, RoundUp(dim, kPairDepth),
              features.batch, CeilDiv(features.batch, kPanelRows),     ActivePairProduct()} {
  const int64_t width = panels_.width;
  const auto number = [&](int64_t row, int64_t k) {
    const bool given = row < features.batch && k < dim && order[row] >= 0;
    return given ? features.data[order[row] * dim + k] : 0.0f;
  };
  ForEachRow(panels_.num_panels, 8 * kPanelRows * width, parallel, [&](int64_t panel) {
    Pair* to = data_.get() + panel * kPanelRows * width / 2;
    const int64_t first = panel * kPanelRows;
    for (int64_t r = 0; r < kPanelRows; ++r) {
      for (int64_t k = 0; k < width; k += 2) {
        to[k / 2 * kPanelRows + r] = PairOf(number(first + r, k), number(first + r, k + 1));
      }
    }
    if (!for_gradient) return;
    Pair* rows = by_rows_.get() + first / 2 * width;
    for (int64_t r = 0; r < kPanelRows; r += 2) {
      for (int64_t k = 0; k < width; ++k) {
        rows[r / 2 * width + k] = PairOf(number(first + r, k), number(first + r + 1, k));
      }
    }
  });
}

}  // namespace largeout
