#include "custom_ops/core/cumulative_table.h"

#include <algorithm>

namespace largeout {
namespace {

double BucketsPerMass(int64_t num_buckets, int64_t total) {
  return static_cast<double>(num_buckets) / static_cast<double>(total);
}

// Never decreases with x, which is all that the search needs of its rounding.
int64_t Bucket(int64_t x, double buckets_per_mass, int64_t num_buckets) {
  const int64_t bucket = static_cast<int64_t>(static_cast<double>(x) * buckets_per_mass);
  return std::clamp<int64_t>(bucket, 0, num_buckets - 1);
}

}  // namespace

CumulativeTable::CumulativeTable(const int64_t* cumulative, int64_t num_classes,
                                 const int64_t* index, int64_t num_buckets, int64_t stratum)
    : cumulative_(cumulative),
      num_classes_(num_classes),
      index_(index),
      num_buckets_(num_buckets),
      stratum_(stratum),
      buckets_per_mass_(BucketsPerMass(num_buckets, cumulative[num_classes])) {}

// The class c with cumulative[c] <= x < cumulative[c + 1]: the first that ends
// beyond x. Its end lies in the bucket of x or later, its start in that bucket
// or earlier, so index[g] <= c <= index[g + 1].
int64_t CumulativeTable::Find(int64_t x) const {
  const int64_t bucket = Bucket(x, buckets_per_mass_, num_buckets_);
  const int64_t first = std::clamp<int64_t>(index_[bucket], 0, num_classes_ - 1);
  const int64_t last = std::clamp<int64_t>(index_[bucket + 1], first, num_classes_ - 1);
  return std::upper_bound(cumulative_ + first + 1, cumulative_ + last + 1, x) - cumulative_ - 1;
}

void BuildCumulativeTable(const int64_t* masses, int64_t num_classes, int64_t num_buckets,
                          int64_t* cumulative, int64_t* index) {
  int64_t sum = 0;
  for (int64_t c = 0; c < num_classes; ++c) {
    const int64_t mass = masses[c];
    cumulative[c] = sum;
    sum += mass;
    cumulative[c + 1] = sum;
  }
  const double buckets_per_mass = BucketsPerMass(num_buckets, sum);
  int64_t c = 0;
  for (int64_t g = 0; g < num_buckets; ++g) {
    while (Bucket(cumulative[c + 1], buckets_per_mass, num_buckets) < g) ++c;
    index[g] = c;
  }
  index[num_buckets] = num_classes - 1;
}

}  // namespace largeout
