#include "custom_ops/core/log_uniform_distribution.h"

#include <algorithm>
#include <cmath>

#include "custom_ops/core/integer_masses.h"

namespace largeout {
namespace {

// Whether class c, with all before it certain, has pi >= 1. The margin keeps
// rounding from making a class longer than a stratum.
bool IsCertain(int64_t c, int64_t num_classes, int64_t num_strata) {
  constexpr double kCertain = 1 - 1e-6;
  const double own = std::log1p(1.0 / (c + 1));
  const double rest = std::log((num_classes + 1.0) / (c + 1));
  return (num_strata - c) * own >= kCertain * rest;
}

// IsCertain holds up to some class and never after: if it fails for c, then
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
      scale_(0) {
  if (num_certain_ < num_classes) {
    scale_ = static_cast<double>(total_ - num_certain_ * stratum_) /
             std::log((num_classes + 1.0) / (num_certain_ + 1));
  }
}

int64_t LogUniformDistribution::Cumulative(int64_t c) const {
  if (c <= num_certain_) return c * stratum_;
  if (c == num_classes_) return total_;
  return num_certain_ * stratum_ +
         std::llround(scale_ * std::log((c + 1.0) / (num_certain_ + 1)));
}

int64_t LogUniformDistribution::Find(int64_t x) const {
  const int64_t certain = num_certain_ * stratum_;
  if (x < certain) return x / stratum_;
  const double guess = (num_certain_ + 1) * std::exp((x - certain) / scale_) - 1;
  int64_t c = std::clamp<int64_t>(static_cast<int64_t>(guess), num_certain_, num_classes_ - 1);
  while (c > num_certain_ && Cumulative(c) > x) --c;
  while (c < num_classes_ - 1 && Cumulative(c + 1) <= x) ++c;
  return c;
}

}  // namespace largeout
