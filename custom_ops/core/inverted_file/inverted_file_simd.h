// The vectorised scores of packed rows, for inverted_file_search.cc and packed_means.cc.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_INVERTED_FILE_INVERTED_FILE_SIMD_H_
#define LARGEOUT_CUSTOM_OPS_CORE_INVERTED_FILE_INVERTED_FILE_SIMD_H_

#include <cstdint>

#include "custom_ops/core/class_scan/packed_rows_simd.h"

namespace largeout {

// A query that is scored against a list, and the start of its segment of scores: one score per
// row of the groups that contain members of the list.
struct QueryOfList {
  int64_t query;
  int64_t segment;
};

// Groups [begin, end) of packed rows: some of the groups that contain members of a list.
struct ListBlock {
  int32_t list;
  int32_t begin, end;
};

struct ListScores {
  PackedRows rows;
  PackedQueries queries;   // of the same width
  const int32_t* offsets;  // list l has packed rows offsets[l] to offsets[l + 1] - 1
  const ListBlock* blocks;
  const QueryOfList* pairs;  // list l has pairs pair_begin[l] to pair_begin[l + 1] - 1
  const int64_t* pair_begin;
  float* scores;
};

#define LARGEOUT_DECLARE_INVERTED_FILE(level)                                         \
  namespace level {                                                                   \
  /* The logits of the members in blocks [begin, end) for the queries of their lists, \
     -inf or NaN where there is none. */                                              \
  void ScoreBlocks(const ListScores& work, int64_t begin, int64_t end);               \
  }
LARGEOUT_DECLARE_INVERTED_FILE(generic)
LARGEOUT_DECLARE_INVERTED_FILE(avx2)
LARGEOUT_DECLARE_INVERTED_FILE(avx512)
#undef LARGEOUT_DECLARE_INVERTED_FILE

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_INVERTED_FILE_INVERTED_FILE_SIMD_H_
