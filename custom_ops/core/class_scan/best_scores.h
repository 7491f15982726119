// The highest of many scores, in a pass or two over them.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_CLASS_SCAN_BEST_SCORES_H_
#define LARGEOUT_CUSTOM_OPS_CORE_CLASS_SCAN_BEST_SCORES_H_

#include <cstdint>
#include <vector>

#include "custom_ops/core/base/rounding.h"
#include "custom_ops/core/class_scan/best_scores_simd.h"
#include "custom_ops/core/class_scan/class_scan_types.h"

namespace largeout {

// `size`, up to the next number of scores that ScoreSieve takes.
inline int64_t PaddedScores(int64_t size) { return RoundUp(size, kScoreMultiple); }

// Picks out the few scores that can be among the k highest. The scores are dealt
// to about 2k groups; a bound that k of the groups' maxima reach is one that at least
// k scores reach, and few more do. Of one thread; to be used again and again.
class ScoreSieve {
 public:
  // Positions of scores, rising, with the k highest among them (all those of
  // equal score), or all that there are; never of NaN or -inf.
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
