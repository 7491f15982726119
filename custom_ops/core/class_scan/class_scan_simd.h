// The vectorised loops of class_scan.cc and class_scan_top_k.cc, at each level of simd_level.h.
//
// The rows of the batch are the lanes of the vectors, so that nothing is ever
// summed or compared across lanes. They come transposed in panels of
// kPanelRows rows: feature k of row r is
// panels[(r / kPanelRows * dim + k) * kPanelRows + r % kPanelRows].
// Few rows would leave most lanes empty: for them the lanes go along the width.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_CLASS_SCAN_CLASS_SCAN_SIMD_H_
#define LARGEOUT_CUSTOM_OPS_CORE_CLASS_SCAN_CLASS_SCAN_SIMD_H_

#include <cstdint>

#include "custom_ops/core/class_scan/class_scan_types.h"
#include "custom_ops/core/class_scan/packed_rows_simd.h"

namespace largeout {

inline constexpr int kPanelRows = 64;
// Classes whose rows of the matrix stay in cache while all panels pass.
inline constexpr int kBlockClasses = 96;

// The most rows whose products with a class are summed along its width; it must be as wide as
// this at least.
inline constexpr int kFewRows = 4;
inline constexpr int kFewRowsWidth = 32;

struct Panels {
  const float* data;
  int64_t num_rows;
  int64_t num_panels;
  const float* few_rows;  // [num_rows, dim]; null unless they are few
};

// The labels to rank. Panel p has slots panel_begin[p] to panel_begin[p + 1],
// each with one label of each of its rows: [slots, kPanelRows]. Slots go by
// rising score; empty places hold NaN and come last.
struct RankSlots {
  const int64_t* panel_begin;
  const float* scores;
  const float* previous_scores;  // the float below the score
  const int32_t* classes;        // their rows of the matrix (Labels::Row), -1 in empty places
};

// The statistics of one shard of the classes, for each row.
struct ShardStatistics {
  float* shift;          // [rows] near the highest logit
  double* total;         // [rows] sum of exp(logit - shift)
  int32_t* higher;       // [slots, kPanelRows] classes that come before the label
  float* limits;         // scratch, [slots of one panel, kPanelRows]
  bool* label_in_block;  // scratch, the same: for the lanes of a vector together
};

// The k best classes of one shard, for each row.
struct ShardTopK {
  int64_t k;
  ScoredClass* best;  // [rows, k] a heap each, the worst in front
  float* limits;      // [rows] the score of the worst
};

// Bounds at 8 bits a number, by which classes that are not among the best are passed over.
struct ClassFilter {
  PackedRows rows;        // with bounds: of all classes, or room for a block of them
  PackedQueries queries;  // the rows of the batch
  bool packs_blocks;      // whether blocks are packed as the pass reaches them
  // Scratch: [kBlockClasses, dim] and twice [kBlockClasses], of classes that may be among them.
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
  /* The logit of one class for one row, to the bit as the scans have it. */                   \
  void ScanOneLogit(const ClassMatrix& matrix, const Panels& panels, int64_t row,              \
                    int64_t class_id, float* logit);                                           \
  }
LARGEOUT_DECLARE_CLASS_SCAN(generic)
LARGEOUT_DECLARE_CLASS_SCAN(avx2)
LARGEOUT_DECLARE_CLASS_SCAN(avx512)
#undef LARGEOUT_DECLARE_CLASS_SCAN

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_CLASS_SCAN_CLASS_SCAN_SIMD_H_
