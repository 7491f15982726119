// The mean rows of an inverted file's lists as 8-bit codes, and their scores: which lists are
// nearest to a query or a row.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_INVERTED_FILE_PACKED_MEANS_H_
#define LARGEOUT_CUSTOM_OPS_CORE_INVERTED_FILE_PACKED_MEANS_H_

#include <cstdint>
#include <functional>

#include "custom_ops/core/base/aligned_array.h"
#include "custom_ops/core/class_scan/best_scores.h"
#include "custom_ops/core/class_scan/packed_rows.h"

namespace largeout {

static_assert(kGroupRows % kScoreMultiple == 0, "a sieve takes the scores of whole groups");

class PackedMeans {
 public:
  PackedMeans(const ClassMatrix& means, const ParallelFor& parallel);

  // Called per query with scores [num_scores]: the score of each mean, padded with -inf to a
  // multiple of kGroupRows; NaN for queries that are not finite. The sieve belongs to the
  // thread.
  using UseScores = std::function<void(int64_t query, const float* scores, int64_t num_scores,
                                       ScoreSieve* sieve)>;

  // Calls `use` for each query, on all threads. `cost` is the cost of `use`, as in ParallelFor.
  void Score(const PackedQueries& queries, int64_t num_queries, int64_t cost,
             const ParallelFor& parallel, const UseScores& use) const;

 private:
  const AlignedArray<uint8_t> codes_;
  const AlignedFloats scales_;
  const PackedRows rows_;
};

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_INVERTED_FILE_PACKED_MEANS_H_
