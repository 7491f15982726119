// The batch in the form that the passes by bfloat16 products need.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_CLASS_SCAN_CLASS_SCAN_BFLOAT16_H_
#define LARGEOUT_CUSTOM_OPS_CORE_CLASS_SCAN_CLASS_SCAN_BFLOAT16_H_

#include <cstdint>
#include <vector>

#include "custom_ops/core/base/aligned_array.h"
#include "custom_ops/core/class_scan/class_scan.h"
#include "custom_ops/core/class_scan/class_scan_bfloat16_simd.h"

namespace largeout {

// Rounds to the nearest bfloat16, ties to even. NaN stays NaN.
uint16_t RoundToBfloat16(float x);

// Examples order[0], order[1], ... of the features. Examples with negative `order` are 0.
class PairedFeatures {
 public:
  // for_gradient: whether to store the pairs by examples too.
  PairedFeatures(const Features& features, int64_t dim, const std::vector<int64_t>& order,
                 bool for_gradient, const ParallelFor& parallel);
  const PairPanels& panels() const { return panels_; }

 private:
  AlignedArray<Pair> data_, by_examples_;
  PairPanels panels_;
};

// The buffers of one thread.
class PairBuffers {
 public:
  explicit PairBuffers(int64_t width)
      : rows_(kBlockClasses * width / 2), logits_(kBlockClasses * kPanelExamples) {}
  PairScratch scratch() const { return {rows_.get(), logits_.get()}; }

 private:
  AlignedArray<Pair> rows_;
  AlignedFloats logits_;
};

class GradientPairBuffers {
 public:
  GradientPairBuffers(int64_t width, int64_t chunk_examples)
      // Not a power of 2: such rows would share cache sets.
      : class_stride_(chunk_examples / 2 + kPairTile),
        by_classes_(kBlockClasses / 2 * width),
        by_class_pairs_(kBlockClasses / 2 * kPanelExamples),
        of_examples_(kPanelExamples * kBlockClasses / 2),
        of_classes_(kBlockClasses * class_stride_) {}
  GradientPairs pairs() const {
    return {by_classes_.get(), by_class_pairs_.get(), of_examples_.get(), of_classes_.get(),
            class_stride_};
  }

 private:
  const int64_t class_stride_;
  AlignedArray<Pair> by_classes_, by_class_pairs_, of_examples_, of_classes_;
};

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_CLASS_SCAN_CLASS_SCAN_BFLOAT16_H_
