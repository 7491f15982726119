#include "custom_ops/core/sampling/log_uniform_distribution.h"

#include <cmath>

#include "custom_ops/core/sampling/integer_masses.h"

namespace largeout {
namespace {

// Whether pi >= 1 for class c if all earlier classes are certain. The margin prevents rounding
// from making a class longer than a stratum.
bool IsCertain(int64_t c, int64_t num_classes, int64_t num_strata) {
  constexpr double kCertain = 1 - 1e-6;
  const double own = std::log1p(1.0 / (c + 1));
  const double rest = std::log((num_classes + 1.0) / (c + 1));
  return (num_strata - c) * own >= kCertain * rest;
}

// IsCertain is true up to some class and false for all later ones: if it is false for c, then
// rest(c + 1) = rest(c) - own(c) > (num_strata - c - 1) own(c + 1).
int64_t NumCertain(int64_t num_classes, int64_t num_strata) {
  int64_t low = 0, high = num_strata;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (IsCertain(middle, num_classes, num_strata)) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

}  // namespace

LogUniformDistribution::LogUniformDistribution(int64_t num_classes, int64_t num_strata)
    : num_classes_(num_classes),
      stratum_(StratumLength(num_strata)),
      num_certain_(NumCertain(num_classes, num_strata)),
      total_(num_strata * stratum_),
      log_certain_(FixedLog(num_certain_ + 1)),
      scale_(0),
      scale_bits_(0),
      inverse_scale_(0) {
  if (num_certain_ == num_classes) return;
  const auto length = static_cast<unsigned __int128>(total_ - num_certain_ * stratum_);
  const auto log = static_cast<uint64_t>(FixedLog(num_classes + 1) - log_certain_);
  while (length << (scale_bits_ + 1) <= static_cast<unsigned __int128>(log) << 63) {
    ++scale_bits_;
  }
  scale_ = static_cast<uint64_t>((length << scale_bits_) / log);
  inverse_scale_ = std::ldexp(static_cast<double>(log), -kFixedLogBits) / length;
}

}  // namespace largeout
