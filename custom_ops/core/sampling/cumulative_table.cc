#include "custom_ops/core/sampling/cumulative_table.h"

#include "custom_ops/core/sampling/integer_masses.h"

namespace largeout {

CumulativeTable::CumulativeTable(const int64_t* cumulative, int64_t num_classes,
                                 const int64_t* index, int64_t num_buckets, int64_t num_strata)
    : cumulative_(cumulative),
      num_classes_(num_classes),
      index_(index),
      num_buckets_(num_buckets),
      stratum_(StratumLength(num_strata)),
      buckets_per_mass_(BucketsPerMass(num_buckets, num_strata * stratum_)) {}

void BuildCumulativeTable(const int64_t* masses, int64_t num_classes, int64_t num_buckets,
                          int64_t* cumulative, int64_t* index) {
  int64_t sum = 0;
  for (int64_t c = 0; c < num_classes; ++c) {
    const int64_t mass = masses[c];
    cumulative[c] = sum;
    sum += mass;
    cumulative[c + 1] = sum;
  }
  const double buckets_per_mass = CumulativeTable::BucketsPerMass(num_buckets, sum);
  int64_t c = 0;
  for (int64_t g = 0; g < num_buckets; ++g) {
    while (CumulativeTable::Bucket(cumulative[c + 1], buckets_per_mass, num_buckets) < g) {
      ++c;
    }
    index[g] = c;
  }
  index[num_buckets] = num_classes - 1;
}

}  // namespace largeout
