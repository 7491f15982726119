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
    : data_(CeilDiv(features.batch, kPanelExamples) * kPanelExamples *
            RoundUp(dim, kPairDepth) / 2),
      by_examples_(for_gradient ? CeilDiv(features.batch, kPanelExamples) * kPanelExamples *
                                      RoundUp(dim, kPairDepth) / 2
                                : 0),
      panels_{
          data_.get(),    for_gradient ? by_examples_.get() : nullptr, RoundUp(dim, kPairDepth),
          features.batch, CeilDiv(features.batch, kPanelExamples),     ActivePairProduct()} {
  const int64_t width = panels_.width;
  const auto number = [&](int64_t example, int64_t k) {
    const bool given = example < features.batch && k < dim && order[example] >= 0;
    return given ? features.data[order[example] * dim + k] : 0.0f;
  };
  ForEachRow(panels_.num_panels, 8 * kPanelExamples * width, parallel, [&](int64_t panel) {
    Pair* to = data_.get() + panel * kPanelExamples * width / 2;
    const int64_t first = panel * kPanelExamples;
    for (int64_t r = 0; r < kPanelExamples; ++r) {
      for (int64_t k = 0; k < width; k += 2) {
        to[k / 2 * kPanelExamples + r] = PairOf(number(first + r, k), number(first + r, k + 1));
      }
    }
    if (!for_gradient) return;
    Pair* pairs = by_examples_.get() + first / 2 * width;
    for (int64_t r = 0; r < kPanelExamples; r += 2) {
      for (int64_t k = 0; k < width; ++k) {
        pairs[r / 2 * width + k] = PairOf(number(first + r, k), number(first + r + 1, k));
      }
    }
  });
}

}  // namespace largeout
