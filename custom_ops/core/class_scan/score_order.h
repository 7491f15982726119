// The order of scored classes: by decreasing score, ties by increasing id.
// Scores of NaN and -inf are not ranked: they come last, in an order that the caller defines.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_CLASS_SCAN_SCORE_ORDER_H_
#define LARGEOUT_CUSTOM_OPS_CORE_CLASS_SCAN_SCORE_ORDER_H_

#include "custom_ops/core/class_scan/class_scan_types.h"

namespace largeout {

// Whether the score is neither NaN nor -inf.
inline bool IsRanked(float score) { return score > -__builtin_inff(); }

// Whether `a` comes before `b`; false for NaN.
inline bool ComesBefore(const ScoredClass& a, const ScoredClass& b) {
  return a.score > b.score || (a.score == b.score && a.id < b.id);
}

// The same for std::sort. REQUIRES: no score is NaN.
struct BestFirst {
  bool operator()(const ScoredClass& a, const ScoredClass& b) const {
    return ComesBefore(a, b);
  }
};

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_CLASS_SCAN_SCORE_ORDER_H_
