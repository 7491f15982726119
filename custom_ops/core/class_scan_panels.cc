#include "custom_ops/core/class_scan_panels.h"

#include <numeric>

#include "custom_ops/core/rounding.h"

namespace largeout {
namespace {

int64_t NumPanels(int64_t rows) { return CeilDiv(rows, kPanelRows); }

}  // namespace

PackedFeatures::PackedFeatures(const Features& features, int64_t dim,
                               const std::vector<int64_t>& order, const ParallelFor& parallel)
    : data_(NumPanels(features.batch) * kPanelRows * dim),
      panels_{data_.get(), features.batch, NumPanels(features.batch)} {
  parallel(panels_.num_panels, 2 * kPanelRows * dim, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin * kPanelRows; row < end * kPanelRows; ++row) {
      float* to = data_.get() + (row / kPanelRows) * kPanelRows * dim + row % kPanelRows;
      const int64_t source = row < features.batch ? order[row] : -1;
      const float* from = source >= 0 ? features.data + source * dim : nullptr;
      for (int64_t k = 0; k < dim; ++k) to[k * kPanelRows] = from != nullptr ? from[k] : 0.0f;
    }
  });
}

std::vector<int64_t> InOrder(int64_t size) {
  std::vector<int64_t> order(size);
  std::iota(order.begin(), order.end(), int64_t{0});
  return order;
}

}  // namespace largeout
