// q_c = 1 / num_classes, as a distribution for sampling.h.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_SAMPLING_UNIFORM_DISTRIBUTION_H_
#define LARGEOUT_CUSTOM_OPS_CORE_SAMPLING_UNIFORM_DISTRIBUTION_H_

#include <cstdint>

namespace largeout {

// A class has length num_strata and a stratum length num_classes: pi = num_strata /
// num_classes.
class UniformDistribution {
 public:
  static constexpr int64_t kCyclesPerFind = 10;

  // REQUIRES: 1 <= num_strata <= num_classes, and their product is at most 2^62.
  UniformDistribution(int64_t num_classes, int64_t num_strata)
      : num_classes_(num_classes), num_strata_(num_strata) {}

  int64_t num_classes() const { return num_classes_; }
  int64_t stratum() const { return num_classes_; }
  int64_t Cumulative(int64_t c) const { return c * num_strata_; }
  int64_t Find(int64_t x) const { return x / num_strata_; }

 private:
  int64_t num_classes_;
  int64_t num_strata_;
};

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_SAMPLING_UNIFORM_DISTRIBUTION_H_
