// Probabilities as integers, from which the tables of alias_table.h and cumulative_table.h are
// made.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_SAMPLING_INTEGER_MASSES_H_
#define LARGEOUT_CUSTOM_OPS_CORE_SAMPLING_INTEGER_MASSES_H_

#include <cstdint>

namespace largeout {

// The length of a stratum (sampling.h) if it can be chosen: the largest power of two for which
// num_strata strata have a total of at most 2^60. REQUIRES: 1 <= num_strata <= 2^60.
inline int64_t StratumLength(int64_t num_strata) {
  constexpr int64_t kLongest = int64_t{1} << 60;
  int64_t length = kLongest;
  while (length > kLongest / num_strata) length >>= 1;
  return length;
}

// masses[c] for c < num_classes is min(1, tau weights[c]) of a stratum. tau is chosen so that
// they sum to num_strata * StratumLength(num_strata). They are rounded so that the sum is exact
// and each mass is in [1, stratum]. REQUIRES: weights are positive and finite, with a finite
// sum; 1 <= num_strata <= num_classes <= 2^31.
void IntegerMasses(const double* weights, int64_t num_classes, int64_t num_strata,
                   int64_t* masses);

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_SAMPLING_INTEGER_MASSES_H_
