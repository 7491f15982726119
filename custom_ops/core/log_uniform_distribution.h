// q_c = log((c + 2) / (c + 1)) / log(num_classes + 1), as a distribution for
// sampling.h in closed form: no table, no state.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_LOG_UNIFORM_DISTRIBUTION_H_
#define LARGEOUT_CUSTOM_OPS_CORE_LOG_UNIFORM_DISTRIBUTION_H_

#include <cstdint>

namespace largeout {

// Lengths are pi_c = min(1, tau q_c) of a stratum with tau such that they sum
// to num_strata. q decreases, so the classes with pi = 1 are the first ones,
// [0, num_certain), and behind them the line is tau log((c + 1) / (num_certain + 1)).
class LogUniformDistribution {
 public:
  // REQUIRES: 1 <= num_strata <= num_classes <= 2^40.
  LogUniformDistribution(int64_t num_classes, int64_t num_strata);

  int64_t num_classes() const { return num_classes_; }
  int64_t stratum() const { return stratum_; }
  int64_t Cumulative(int64_t c) const;
  int64_t Find(int64_t x) const;

 private:
  int64_t num_classes_;
  int64_t stratum_;
  int64_t num_certain_;
  int64_t total_;
  double scale_;  // tau in integers
};

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_LOG_UNIFORM_DISTRIBUTION_H_
