// How a pass over the classes is divided, and the form of the batch that it needs.

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

// Consecutive ranges of classes that depend only on the number of classes (and on `most`). The
// size of each but the last is a multiple of kBlockClasses.
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

// Examples order[0], order[1], ... of the features, as panels (class_scan_simd.h). Examples
// with negative `order` are 0, like the padding of the last panel.
class PackedFeatures {
 public:
  PackedFeatures(const Features& features, int64_t dim, const std::vector<int64_t>& order,
                 const ParallelFor& parallel);
  const Panels& panels() const { return panels_; }
  int64_t num_examples() const { return panels_.num_panels * kPanelExamples; }

 private:
  void CopyFewExamples(const Features& features, int64_t dim,
                       const std::vector<int64_t>& order);

  AlignedFloats data_;
  std::vector<float> few_examples_;
  Panels panels_;
};

// 0, 1, ..., size - 1.
std::vector<int64_t> InOrder(int64_t size);

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_CLASS_SCAN_CLASS_SCAN_PANELS_H_
