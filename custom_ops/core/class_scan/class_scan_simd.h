// The vectorised loops of class_scan.cc and class_scan_top_k.cc, at each level of simd_level.h.
//
// The examples of the batch are the lanes of the vectors, so nothing is summed or compared
// across lanes. They are transposed in panels of kPanelExamples examples: feature k of example
// r is panels[(r / kPanelExamples * dim + k) * kPanelExamples + r % kPanelExamples]. With few
// examples most lanes would be empty, so the lanes then run along the width.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_CLASS_SCAN_CLASS_SCAN_SIMD_H_
#define LARGEOUT_CUSTOM_OPS_CORE_CLASS_SCAN_CLASS_SCAN_SIMD_H_

#include <cstdint>

#include "custom_ops/core/class_scan/class_scan_types.h"
#include "custom_ops/core/class_scan/packed_rows_simd.h"

namespace largeout {

inline constexpr int kPanelExamples = 64;
// The number of classes whose rows stay in the cache while all panels are processed.
inline constexpr int kBlockClasses = 96;

// The largest number of examples whose products with a class are summed along its width. The
// width must be at least this.
inline constexpr int kFewExamples = 4;
inline constexpr int kFewExamplesWidth = 32;

struct Panels {
  const float* data;
  int64_t num_examples;
  int64_t num_panels;
  const float* few_examples;  // [num_examples, dim]; null unless there are few examples
};

// The labels to rank. Panel p has slots panel_begin[p] to panel_begin[p + 1], each with one
// label per example: [slots, kPanelExamples]. The slots of an example are sorted by increasing
// score; empty places hold NaN and come last.
struct RankSlots {
  const int64_t* panel_begin;
  const float* scores;
  const float* previous_scores;  // the next float below the score
  const int32_t* classes;        // their rows of the matrix (Labels::Row), -1 in empty places
};

// The statistics of one shard of the classes, per example.
struct ShardStatistics {
  float* shift;          // [examples] near the highest logit
  double* total;         // [examples] sum of exp(logit - shift)
  int32_t* higher;       // [slots, kPanelExamples] number of classes that rank before the label
  float* limits;         // scratch, [slots of one panel, kPanelExamples]
  bool* label_in_block;  // scratch, the same shape; one for all lanes of a vector
};

// The k best classes of one shard, per example.
struct ShardTopK {
  int64_t k;
  ScoredClass* best;  // [examples, k] one heap per example, the worst class first
  float* limits;      // [examples] score of the worst class
};

// Bounds from 8-bit numbers. They let a scan skip classes that cannot be among the best.
struct ClassFilter {
  PackedRows rows;        // with bounds: all classes, or room for a block of them
  PackedQueries queries;  // the examples of the batch
  bool packs_blocks;      // whether the pass packs each block before it uses it
  bool passes_all;        // whether to score all classes, because the queries have no bounds
  // Scratch: [kBlockClasses, dim] and twice [kBlockClasses], for the classes that may be among
  // the best.
  float* embeddings;
  float* bias;
  int32_t* ids;
};

#define LARGEOUT_DECLARE_CLASS_SCAN(level)                                                     \
  namespace level {                                                                            \
  void ScanStatistics(const ClassMatrix& matrix, const Panels& panels, const RankSlots& slots, \
                      int64_t begin, int64_t end, const ShardStatistics& shard);               \
  void ScanTopK(const ClassMatrix& matrix, const Panels& panels, int64_t begin, int64_t end,   \
                const ShardTopK& shard);                                                       \
  /* Gives the same as ScanTopK. */                                                            \
  void ScanFilteredTopK(const ClassMatrix& matrix, const Panels& panels,                       \
                        const ClassFilter& filter, int64_t begin, int64_t end,                 \
                        const ShardTopK& shard);                                               \
  /* The logit of one class for one example, to the bit as the scans have it. */               \
  void ScanOneLogit(const ClassMatrix& matrix, const Panels& panels, int64_t example,          \
                    int64_t class_id, float* logit);                                           \
  }
LARGEOUT_DECLARE_CLASS_SCAN(generic)
LARGEOUT_DECLARE_CLASS_SCAN(avx2)
LARGEOUT_DECLARE_CLASS_SCAN(avx512)
#undef LARGEOUT_DECLARE_CLASS_SCAN

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_CLASS_SCAN_CLASS_SCAN_SIMD_H_
