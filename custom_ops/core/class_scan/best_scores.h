// Finds the highest of many scores, in one or two passes over them.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_CLASS_SCAN_BEST_SCORES_H_
#define LARGEOUT_CUSTOM_OPS_CORE_CLASS_SCAN_BEST_SCORES_H_

#include <cstdint>
#include <vector>

#include "custom_ops/core/base/rounding.h"
#include "custom_ops/core/class_scan/best_scores_simd.h"
#include "custom_ops/core/class_scan/class_scan_types.h"

namespace largeout {

// `size`, rounded up to a number of scores that ScoreSieve accepts.
inline int64_t PaddedScores(int64_t size) { return RoundUp(size, kScoreMultiple); }

// Selects the few scores that can be among the k highest. The scores are divided into about 2k
// groups. If the maxima of k groups reach a bound, at least k scores reach it, and few more do.
// For one thread; reusable.
class ScoreSieve {
 public:
  // Returns increasing positions of scores. They include the k highest scores (all scores that
  // are equal to the k-th), or all scores if there are fewer. NaN and -inf are never included.
  // REQUIRES: size is a multiple of kScoreMultiple below 2^31; k >= 1.
  const std::vector<int32_t>& Pass(const float* scores, int64_t size, int64_t k);

 private:
  float Bound(const float* scores, int64_t size, int64_t k);

  std::vector<float> maxima_;
  std::vector<int32_t> positions_;
};

// Keeps the k best of `classes`, in the order of score_order.h.
// REQUIRES: no score is NaN.
void KeepBest(int64_t k, std::vector<ScoredClass>* classes);

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_CLASS_SCAN_BEST_SCORES_H_
