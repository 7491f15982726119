#include "custom_ops/core/class_scan/class_scan_panels.h"

#include <numeric>

#include "custom_ops/core/base/rounding.h"

namespace largeout {
namespace {

int64_t NumPanels(int64_t batch) { return CeilDiv(batch, kPanelExamples); }

bool AreFew(int64_t batch, int64_t dim) {
  return batch <= kFewExamples && dim >= kFewExamplesWidth;
}

}  // namespace

PackedFeatures::PackedFeatures(const Features& features, int64_t dim,
                               const std::vector<int64_t>& order, const ParallelFor& parallel)
    : data_(NumPanels(features.batch) * kPanelExamples * dim),
      few_examples_(AreFew(features.batch, dim) ? features.batch * dim : 0),
      panels_{data_.get(), features.batch, NumPanels(features.batch),
              AreFew(features.batch, dim) ? few_examples_.data() : nullptr} {
  if (panels_.few_examples != nullptr) CopyFewExamples(features, dim, order);
  parallel(panels_.num_panels, 2 * kPanelExamples * dim, [&](int64_t begin, int64_t end) {
    for (int64_t example = begin * kPanelExamples; example < end * kPanelExamples; ++example) {
      float* to = data_.get() + (example / kPanelExamples) * kPanelExamples * dim +
                  example % kPanelExamples;
      const int64_t source = example < features.batch ? order[example] : -1;
      const float* from = source >= 0 ? features.data + source * dim : nullptr;
      for (int64_t k = 0; k < dim; ++k) {
        to[k * kPanelExamples] = from != nullptr ? from[k] : 0.0f;
      }
    }
  });
}

void PackedFeatures::CopyFewExamples(const Features& features, int64_t dim,
                                     const std::vector<int64_t>& order) {
  for (int64_t example = 0; example < features.batch; ++example) {
    if (order[example] < 0) continue;  // stays 0
    std::copy_n(features.data + order[example] * dim, dim,
                few_examples_.data() + example * dim);
  }
}

std::vector<int64_t> InOrder(int64_t size) {
  std::vector<int64_t> order(size);
  std::iota(order.begin(), order.end(), int64_t{0});
  return order;
}

}  // namespace largeout
