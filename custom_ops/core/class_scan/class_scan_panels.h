// How a pass over the classes is cut up, and the batch in the form it wants.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_CLASS_SCAN_CLASS_SCAN_PANELS_H_
#define LARGEOUT_CUSTOM_OPS_CORE_CLASS_SCAN_CLASS_SCAN_PANELS_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "custom_ops/core/base/aligned_array.h"
#include "custom_ops/core/base/rounding.h"
#include "custom_ops/core/class_scan/class_scan.h"
#include "custom_ops/core/class_scan/class_scan_simd.h"

namespace largeout {

// Consecutive ranges of classes that depend on the number of classes only (and
// on `most`), each a multiple of kBlockClasses but the last.
class ClassShards {
 public:
  ClassShards(int64_t num_classes, int64_t most) : num_classes_(num_classes) {
    const int64_t blocks = CeilDiv(num_classes, kBlockClasses);
    const int64_t blocks_a_shard = CeilDiv(blocks, most);
    size_ = blocks_a_shard * kBlockClasses;
  }
  int64_t count() const { return CeilDiv(num_classes_, size_); }
  int64_t begin(int64_t shard) const { return shard * size_; }
  int64_t end(int64_t shard) const { return std::min(num_classes_, (shard + 1) * size_); }
  int64_t size() const { return size_; }

 private:
  int64_t num_classes_;
  int64_t size_;
};

// Rows order[0], order[1], ... of the features, as panels (class_scan_simd.h).
// Rows where `order` is negative are 0, as are those that fill up the last panel.
class PackedFeatures {
 public:
  PackedFeatures(const Features& features, int64_t dim, const std::vector<int64_t>& order,
                 const ParallelFor& parallel);
  const Panels& panels() const { return panels_; }
  int64_t num_rows() const { return panels_.num_panels * kPanelRows; }

 private:
  void CopyFewRows(const Features& features, int64_t dim, const std::vector<int64_t>& order);

  AlignedFloats data_;
  std::vector<float> few_rows_;
  Panels panels_;
};

// 0, 1, ..., size - 1.
std::vector<int64_t> InOrder(int64_t size);

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_CLASS_SCAN_CLASS_SCAN_PANELS_H_
