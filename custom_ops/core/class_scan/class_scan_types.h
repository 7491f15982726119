// Plain types of the passes over all classes, without std, so that X_simd.cc files can include
// them.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_CLASS_SCAN_CLASS_SCAN_TYPES_H_
#define LARGEOUT_CUSTOM_OPS_CORE_CLASS_SCAN_CLASS_SCAN_TYPES_H_

#include <cstdint>

namespace largeout {

// REQUIRES: 1 <= num_classes < 2^31 - 1. Functions support rows in bfloat16 if they say so.
struct ClassMatrix {
  // [num_classes, dim]; null if the rows are in bfloat16, or only packed (ClassTopK).
  const float* embeddings;
  const float* bias;  // [num_classes], or null
  int64_t num_classes;
  int64_t dim;
  const uint16_t* bfloat16_rows = nullptr;  // [num_classes, dim], or null
  // Whether the rows count as rows of length 1, see unit_rows.h. ClassStatistics, LabelLogits
  // and ClassTopK support it without packed rows.
  bool unit_length = false;
};

struct Features {
  const float* data;  // [batch, dim]
  int64_t batch;
};

// Negative ids are padding. Without `logits`, all other ids are in [0, num_classes). With
// `logits`, the matrix may be a shard of a larger one: row r of the matrix is class first_class
// + r, and a label may be any class of the larger matrix.
struct Labels {
  const int64_t* ids;  // [batch, width]
  int64_t width;
  const float* logits = nullptr;  // logits of the labels, [batch, width], or null
  int64_t first_class = 0;        // at least 0; must be 0 without `logits`

  // The row of label i in the matrix: -1 if the label comes before all rows or is padding, and
  // at least num_classes if it comes after them.
  int32_t Row(int64_t i) const {
    constexpr int64_t kBehindAll = 2147483647;
    if (ids[i] < first_class) return -1;
    const int64_t row = ids[i] - first_class;
    return static_cast<int32_t>(row < kBehindAll ? row : kBehindAll);
  }
};

// The number type of the factors of products; sums are float32. kBfloat16 rounds features,
// classes and probabilities to the nearest bfloat16 first.
enum class ProductNumbers { kFloat32, kBfloat16 };

struct ScoredClass {
  float score;
  int32_t id;
};

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_CLASS_SCAN_CLASS_SCAN_TYPES_H_
