#include "custom_ops/core/class_scan/best_scores.h"

#include <algorithm>
#include <limits>

#include "custom_ops/core/base/simd_level.h"
#include "custom_ops/core/class_scan/score_order.h"

namespace largeout {

float ScoreSieve::Bound(const float* scores, int64_t size, int64_t k) {
  constexpr float kLowest = std::numeric_limits<float>::lowest();
  const int64_t num_groups = PaddedScores(2 * k);
  if (size < 2 * num_groups) return kLowest;
  maxima_.resize(num_groups);
  LARGEOUT_SIMD_DISPATCH(GroupMaxima, scores, size, num_groups, maxima_.data());
  float bound = kLowest;
  LARGEOUT_SIMD_DISPATCH(FindBound, maxima_.data(), num_groups, k, &bound);
  return std::max(bound, kLowest);
}

const std::vector<int32_t>& ScoreSieve::Pass(const float* scores, int64_t size, int64_t k) {
  positions_.resize(size);
  int64_t count = 0;
  const float bound = Bound(scores, size, k);
  LARGEOUT_SIMD_DISPATCH(PositionsFrom, scores, size, bound, positions_.data(), &count);
  positions_.resize(count);
  return positions_;
}

void KeepBest(int64_t k, std::vector<ScoredClass>* classes) {
  if (static_cast<int64_t>(classes->size()) > k) {
    std::nth_element(classes->begin(), classes->begin() + k, classes->end(), BestFirst());
    classes->resize(k);
  }
  std::sort(classes->begin(), classes->end(), BestFirst());
}

}  // namespace largeout
