// The mean rows of an inverted file's lists at 8 bits a number, and their scores: which
// lists a query or a row is nearest to.

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

  // What is done with one query: scores [num_scores], of each mean, then -inf up to a
  // multiple of kGroupRows; NaN for queries with numbers that are not finite. The sieve
  // is the thread's.
  using UseScores = std::function<void(int64_t query, const float* scores, int64_t num_scores,
                                       ScoreSieve* sieve)>;

  // Calls `use` for each query, on all threads. `cost` is that of `use`, as of ParallelFor.
  void Score(const PackedQueries& queries, int64_t num_queries, int64_t cost,
             const ParallelFor& parallel, const UseScores& use) const;

 private:
  const AlignedArray<uint8_t> codes_;
  const AlignedFloats scales_;
  const PackedRows rows_;
};

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_INVERTED_FILE_PACKED_MEANS_H_
