// Probabilities as integers: what the tables of alias_table.h and
// cumulative_table.h are made of.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_SAMPLING_INTEGER_MASSES_H_
#define LARGEOUT_CUSTOM_OPS_CORE_SAMPLING_INTEGER_MASSES_H_

#include <cstdint>

namespace largeout {

// The length of a stratum (sampling.h) where it is free: the longest power of
// two of which num_strata make at most 2^60.
// REQUIRES: 1 <= num_strata <= 2^60.
inline int64_t StratumLength(int64_t num_strata) {
  constexpr int64_t kLongest = int64_t{1} << 60;
  int64_t length = kLongest;
  while (length > kLongest / num_strata) length >>= 1;
  return length;
}

// masses[c] for c < num_classes is min(1, tau weights[c]) of a stratum, with
// tau such that they sum to num_strata * StratumLength(num_strata): rounded so
// that the sum holds exactly and each mass is in [1, stratum].
// REQUIRES: weights positive and finite, with a finite sum;
// 1 <= num_strata <= num_classes <= 2^31.
void IntegerMasses(const double* weights, int64_t num_classes, int64_t num_strata,
                   int64_t* masses);

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_SAMPLING_INTEGER_MASSES_H_
