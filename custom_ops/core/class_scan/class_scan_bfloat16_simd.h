// The passes over all classes by bfloat16 products, at each level of simd_level.h.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_CLASS_SCAN_CLASS_SCAN_BFLOAT16_SIMD_H_
#define LARGEOUT_CUSTOM_OPS_CORE_CLASS_SCAN_CLASS_SCAN_BFLOAT16_SIMD_H_

#include <cstdint>

#include "custom_ops/core/class_scan/class_scan_gradient_simd.h"
#include "custom_ops/core/class_scan/class_scan_simd.h"
#include "custom_ops/core/linear_algebra/bfloat16_product.h"

namespace largeout {

// The batch as pairs (bfloat16_product.h). Zeros pad the last panel to whole panels, and each
// example to `width`.
struct PairPanels {
  const Pair* data;         // [num_panels, width / 2, kPanelExamples]
  const Pair* by_examples;  // [num_panels * kPanelExamples / 2, width], only for gradients
  int64_t width;            // of an example, rounded up to a multiple of kPairDepth
  int64_t num_examples;
  int64_t num_panels;
  PairProduct product;
};

// Scratch for a block of classes and a panel.
struct PairScratch {
  Pair* rows;     // [kBlockClasses, width / 2]
  float* logits;  // [kBlockClasses, kPanelExamples]
};

// Scratch for the gradients of a block.
struct GradientPairs {
  Pair* by_classes;      // [kBlockClasses / 2, width]
  Pair* by_class_pairs;  // [kBlockClasses / 2, kPanelExamples]
  Pair* of_examples;     // [kPanelExamples, kBlockClasses / 2]
  Pair* of_classes;      // [kBlockClasses, class_stride]
  int64_t class_stride;  // at least half the examples of a chunk
};

#define LARGEOUT_DECLARE_BFLOAT16_SCAN(level)                                             \
  namespace level {                                                                       \
  void ScanPairStatistics(const ClassMatrix& matrix, const PairPanels& panels,            \
                          const RankSlots& slots, int64_t begin, int64_t end,             \
                          const PairScratch& scratch, const ShardStatistics& shard);      \
  /* The logit of one class for one example, to the bit as the scans have it. */          \
  void OnePairLogit(const ClassMatrix& matrix, const PairPanels& panels, int64_t example, \
                    int64_t class_id, const PairScratch& scratch, float* logit);          \
  void ScanPairGradient(const ClassMatrix& matrix, const PairPanels& panels,              \
                        const GradientExamples& examples, int64_t begin, int64_t end,     \
                        const PairScratch& scratch, const GradientPairs& pairs,           \
                        const ShardGradient& shard);                                      \
  }
LARGEOUT_DECLARE_BFLOAT16_SCAN(generic)
LARGEOUT_DECLARE_BFLOAT16_SCAN(avx2)
LARGEOUT_DECLARE_BFLOAT16_SCAN(avx512)
#undef LARGEOUT_DECLARE_BFLOAT16_SCAN

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_CLASS_SCAN_CLASS_SCAN_BFLOAT16_SIMD_H_
