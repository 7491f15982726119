// Plain types of the passes over all classes, without std: X_simd.cc files
// include this where others include class_scan.h.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_CLASS_SCAN_TYPES_H_
#define LARGEOUT_CUSTOM_OPS_CORE_CLASS_SCAN_TYPES_H_

#include <cstdint>

namespace largeout {

// REQUIRES: 1 <= num_classes < 2^31.
struct ClassMatrix {
  const float* embeddings;  // [num_classes, dim]
  const float* bias;        // [num_classes], or null
  int64_t num_classes;
  int64_t dim;
};

struct Features {
  const float* data;  // [batch, dim]
  int64_t batch;
};

struct Labels {
  const int64_t* ids;  // [batch, width], in [0, num_classes) or negative: none
  int64_t width;
};

struct ScoredClass {
  float score;
  int32_t id;
};

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_CLASS_SCAN_TYPES_H_
