// The vectorised loops of class_scan_gradient.cc, at each level of simd_level.h.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_CLASS_SCAN_CLASS_SCAN_GRADIENT_SIMD_H_
#define LARGEOUT_CUSTOM_OPS_CORE_CLASS_SCAN_CLASS_SCAN_GRADIENT_SIMD_H_

#include <cstdint>

#include "custom_ops/core/class_scan/class_scan_simd.h"

namespace largeout {

// Rows of the batch whose probabilities are held at once.
inline constexpr int kChunkRows = 512;

struct LabelWeight {
  int32_t class_id;
  int32_t row;
  float weight;
};

// The batch, filled up with 0 to a width that dense_product_simd.h takes; values of the rows
// that fill up the last panel are 0 (shift: inf).
struct GradientRows {
  const float* features;  // [batch, width]; null for bfloat16 products
  int64_t width;
  const float* shift;         // [panel rows] log partition, inf for weight 0
  const float* weights;       // [panel rows]
  const LabelWeight* labels;  // by rising class
  int64_t num_labels;
};

// What one shard of the classes works on. Scratch has room for one block.
struct ShardGradient {
  float* probabilities;        // scratch [kBlockClasses, stride]
  int64_t probability_stride;  // at least the rows of a chunk
  float* embeddings;           // scratch [kBlockClasses, width]
  float* block_gradient;       // scratch [kBlockClasses, width]
  float* d_features;           // [batch, width], added to
  float* d_embeddings;         // [num_classes, dim]
  float* d_bias;               // [num_classes], or null
};

#define LARGEOUT_DECLARE_CLASS_GRADIENT(level)                                                 \
  namespace level {                                                                            \
  void ScanGradient(const ClassMatrix& matrix, const Panels& panels, const GradientRows& rows, \
                    int64_t begin, int64_t end, const ShardGradient& shard);                   \
  }
LARGEOUT_DECLARE_CLASS_GRADIENT(generic)
LARGEOUT_DECLARE_CLASS_GRADIENT(avx2)
LARGEOUT_DECLARE_CLASS_GRADIENT(avx512)
#undef LARGEOUT_DECLARE_CLASS_GRADIENT

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_CLASS_SCAN_CLASS_SCAN_GRADIENT_SIMD_H_
