// q_c = log((c + 2) / (c + 1)) / log(num_classes + 1), as a distribution for sampling.h in
// closed form, without a table or state.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_SAMPLING_LOG_UNIFORM_DISTRIBUTION_H_
#define LARGEOUT_CUSTOM_OPS_CORE_SAMPLING_LOG_UNIFORM_DISTRIBUTION_H_

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "custom_ops/core/sampling/fixed_log.h"

namespace largeout {

// Lengths are pi_c = min(1, tau q_c) of a stratum, with tau such that they sum to num_strata. q
// decreases, so the classes with pi = 1 are the first ones, [0, num_certain). After them, the
// cumulative length is tau log((c + 1) / (num_certain + 1)). Logarithms are integers
// (fixed_log.h), so that every processor draws the same classes.
class LogUniformDistribution {
 public:
  static constexpr int64_t kCyclesPerFind = 150;

  // REQUIRES: 1 <= num_strata <= num_classes <= 2^40.
  LogUniformDistribution(int64_t num_classes, int64_t num_strata);

  int64_t num_classes() const { return num_classes_; }
  int64_t stratum() const { return stratum_; }

  int64_t Cumulative(int64_t c) const {
    if (c <= num_certain_) return c * stratum_;
    if (c == num_classes_) return total_;
    const auto log = static_cast<unsigned __int128>(FixedLog(c + 1) - log_certain_);
    return num_certain_ * stratum_ + static_cast<int64_t>(log * scale_ >> scale_bits_);
  }

  int64_t Find(int64_t x) const {
    const int64_t certain = num_certain_ * stratum_;
    if (x < certain) return x / stratum_;
    // The guess may differ between processors. The loops correct it with Cumulative, which
    // does not.
    const double guess = (num_certain_ + 1) * std::exp((x - certain) * inverse_scale_) - 1;
    int64_t c =
        std::clamp<int64_t>(static_cast<int64_t>(guess), num_certain_, num_classes_ - 1);
    while (c > num_certain_ && Cumulative(c) > x) --c;
    while (c < num_classes_ - 1 && Cumulative(c + 1) <= x) ++c;
    return c;
  }

 private:
  int64_t num_classes_;
  int64_t stratum_;
  int64_t num_certain_;
  int64_t total_;
  int64_t log_certain_;  // FixedLog(num_certain + 1)
  uint64_t scale_;       // tau, times 2^(scale_bits - kFixedLogBits)
  int scale_bits_;
  double inverse_scale_;  // 1 / tau
};

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_SAMPLING_LOG_UNIFORM_DISTRIBUTION_H_
