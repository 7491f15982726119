// The vectorised loops of best_scores.cc, at each level of simd_level.h.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_CLASS_SCAN_BEST_SCORES_SIMD_H_
#define LARGEOUT_CUSTOM_OPS_CORE_CLASS_SCAN_BEST_SCORES_SIMD_H_

#include <cstdint>

namespace largeout {

// The numbers of scores and of groups are multiples of this: the largest number of lanes of a
// vector.
inline constexpr int64_t kScoreMultiple = 16;

#define LARGEOUT_DECLARE_BEST_SCORES(level)                                                \
  namespace level {                                                                        \
  /* maxima[g] = the highest of scores g, g + num_groups, ...; NaN passed over. */         \
  void GroupMaxima(const float* scores, int64_t size, int64_t num_groups, float* maxima);  \
  /* *bound: what at least k of the values reach, and hardly more do, unless one is far */ \
  /* from the others; -inf if fewer than k are finite. */                                  \
  void FindBound(const float* values, int64_t size, int64_t k, float* bound);              \
  /* Writes the positions of the scores >= bound, rising, and how many they are. */        \
  void PositionsFrom(const float* scores, int64_t size, float bound, int32_t* positions,   \
                     int64_t* count);                                                      \
  }
LARGEOUT_DECLARE_BEST_SCORES(generic)
LARGEOUT_DECLARE_BEST_SCORES(avx2)
LARGEOUT_DECLARE_BEST_SCORES(avx512)
#undef LARGEOUT_DECLARE_BEST_SCORES

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_CLASS_SCAN_BEST_SCORES_SIMD_H_
