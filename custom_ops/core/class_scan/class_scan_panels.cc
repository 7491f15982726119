#include "custom_ops/core/class_scan/class_scan_panels.h"

#include <numeric>

#include "custom_ops/core/base/rounding.h"

namespace largeout {
namespace {

int64_t NumPanels(int64_t rows) { return CeilDiv(rows, kPanelRows); }

bool AreFew(int64_t rows, int64_t dim) { return rows <= kFewRows && dim >= kFewRowsWidth; }

}  // namespace

PackedFeatures::PackedFeatures(const Features& features, int64_t dim,
                               const std::vector<int64_t>& order, const ParallelFor& parallel)
    : data_(NumPanels(features.batch) * kPanelRows * dim),
      few_rows_(AreFew(features.batch, dim) ? features.batch * dim : 0),
      panels_{data_.get(), features.batch, NumPanels(features.batch),
              AreFew(features.batch, dim) ? few_rows_.data() : nullptr} {
  if (panels_.few_rows != nullptr) CopyFewRows(features, dim, order);
  parallel(panels_.num_panels, 2 * kPanelRows * dim, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin * kPanelRows; row < end * kPanelRows; ++row) {
      float* to = data_.get() + (row / kPanelRows) * kPanelRows * dim + row % kPanelRows;
      const int64_t source = row < features.batch ? order[row] : -1;
      const float* from = source >= 0 ? features.data + source * dim : nullptr;
      for (int64_t k = 0; k < dim; ++k) to[k * kPanelRows] = from != nullptr ? from[k] : 0.0f;
    }
  });
}

void PackedFeatures::CopyFewRows(const Features& features, int64_t dim,
                                 const std::vector<int64_t>& order) {
  for (int64_t row = 0; row < features.batch; ++row) {
    if (order[row] < 0) continue;  // stays 0
    std::copy_n(features.data + order[row] * dim, dim, few_rows_.data() + row * dim);
  }
}

std::vector<int64_t> InOrder(int64_t size) {
  std::vector<int64_t> order(size);
  std::iota(order.begin(), order.end(), int64_t{0});
  return order;
}

}  // namespace largeout
