// The vectorised loops of class_scan_gradient.cc, at each level of simd_level.h.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_CLASS_SCAN_CLASS_SCAN_GRADIENT_SIMD_H_
#define LARGEOUT_CUSTOM_OPS_CORE_CLASS_SCAN_CLASS_SCAN_GRADIENT_SIMD_H_

#include <cstdint>

#include "custom_ops/core/class_scan/class_scan_simd.h"

namespace largeout {

// The number of examples whose probabilities are held at once.
inline constexpr int kChunkExamples = 512;

struct LabelWeight {
  int32_t class_id;
  int32_t example;
  float weight;
};

// The batch, padded with 0 to a width that dense_product_simd.h accepts. The padding examples
// of the last panel have values of 0 (and shift inf).
struct GradientExamples {
  const float* features;  // [batch, width]; null for bfloat16 products
  int64_t width;
  const float* shift;         // [padded examples] log partition, inf for weight 0
  const float* weights;       // [padded examples]
  const LabelWeight* labels;  // by increasing class
  int64_t num_labels;
};

// The data of one shard of the classes. Scratch has room for one block.
struct ShardGradient {
  float* probabilities;        // scratch [kBlockClasses, stride]
  int64_t probability_stride;  // at least the examples of a chunk
  float* embeddings;           // scratch [kBlockClasses, width]
  float* block_gradient;       // scratch [kBlockClasses, width]
  float* d_features;           // [batch, width], added to
  float* d_embeddings;         // [num_classes, dim]
  float* d_bias;               // [num_classes], or null
};

#define LARGEOUT_DECLARE_CLASS_GRADIENT(level)                                    \
  namespace level {                                                               \
  void ScanGradient(const ClassMatrix& matrix, const Panels& panels,              \
                    const GradientExamples& examples, int64_t begin, int64_t end, \
                    const ShardGradient& shard);                                  \
  }
LARGEOUT_DECLARE_CLASS_GRADIENT(generic)
LARGEOUT_DECLARE_CLASS_GRADIENT(avx2)
LARGEOUT_DECLARE_CLASS_GRADIENT(avx512)
#undef LARGEOUT_DECLARE_CLASS_GRADIENT

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_CLASS_SCAN_CLASS_SCAN_GRADIENT_SIMD_H_
