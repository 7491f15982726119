#include "custom_ops/core/sampling/integer_masses.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <vector>

namespace largeout {
namespace {

// The sum of the weights other than the largest ones, without cancellation.
double TailSum(const double* weights, int64_t num_classes, const std::vector<double>& largest) {
  const double last = largest.back();
  int64_t ties = -std::count(largest.begin(), largest.end(), last);
  double sum = 0;
  for (int64_t c = 0; c < num_classes; ++c) {
    if (weights[c] < last) sum += weights[c];
    if (weights[c] == last) ++ties;
  }
  return sum + ties * last;
}

// A weight w that is not drawn with certainty gets w * scale of a stratum.
struct Scale {
  double scale;
  double certain;  // weights of at least this are certain
};

// If the k largest are certain, the next weight w is certain too if its share of the remaining
// num_strata - k strata is at least one: (num_strata - k) w >= rest.
Scale FindScale(const double* weights, int64_t num_classes, int64_t num_strata) {
  std::vector<double> largest(num_strata);
  std::partial_sort_copy(weights, weights + num_classes, largest.begin(), largest.end(),
                         std::greater<double>());
  std::vector<double> rest(num_strata + 1, TailSum(weights, num_classes, largest));
  for (int64_t k = num_strata - 1; k >= 0; --k) rest[k] = rest[k + 1] + largest[k];
  int64_t k = 0;
  while (k < num_strata && (num_strata - k) * largest[k] >= rest[k]) ++k;
  const double certain = k > 0 ? largest[k - 1] : 2 * largest[0];
  return {k < num_strata ? (num_strata - k) / rest[k] : 0, certain};
}

// Adds `missing` (which may be negative) to the sum, distributed as evenly as integers allow.
void SpreadRemainder(int64_t missing, int64_t num_classes, int64_t stratum, int64_t* masses) {
  while (missing != 0) {
    const int64_t step = std::max<int64_t>(1, std::abs(missing) / num_classes);
    for (int64_t c = 0; c < num_classes && missing != 0; ++c) {
      const int64_t most = std::min(step, std::abs(missing));
      const int64_t change =
          missing > 0 ? std::min(most, stratum - masses[c]) : -std::min(most, masses[c] - 1);
      masses[c] += change;
      missing -= change;
    }
  }
}

}  // namespace

void IntegerMasses(const double* weights, int64_t num_classes, int64_t num_strata,
                   int64_t* masses) {
  const int64_t stratum = StratumLength(num_strata);
  const Scale scale = FindScale(weights, num_classes, num_strata);
  for (int64_t c = 0; c < num_classes; ++c) {
    const double share = std::min(1.0, weights[c] * scale.scale);
    const int64_t mass = static_cast<int64_t>(share * stratum);
    masses[c] = weights[c] >= scale.certain ? stratum : std::max<int64_t>(mass, 1);
  }
  const int64_t sum = std::accumulate(masses, masses + num_classes, int64_t{0});
  SpreadRemainder(num_strata * stratum - sum, num_classes, stratum, masses);
}

}  // namespace largeout
