// An arbitrary distribution as a table of cumulative masses, for sampling.h.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_SAMPLING_CUMULATIVE_TABLE_H_
#define LARGEOUT_CUSTOM_OPS_CORE_SAMPLING_CUMULATIVE_TABLE_H_

#include <algorithm>
#include <cstdint>

namespace largeout {

// A view of two arrays:
//   cumulative [num_classes + 1]  sums of IntegerMasses, from 0;
//   index [num_buckets + 1]       the line is cut into num_buckets equal
//       pieces; index[g] is the first class that ends in piece g or later.
// A class in piece g is among index[g] ... index[g + 1]: a few classes on
// average, so that Find takes O(1) time on average and O(log num_classes) at most.
// Find stays inside the arrays whatever they hold.
class CumulativeTable {
 public:
  static constexpr int64_t kCyclesPerFind = 250;  // if the table is not in a cache

  // For num_strata of StratumLength(num_strata), whose sum is cumulative[num_classes]. Does not
  // read the arrays. REQUIRES: num_classes >= 1, num_buckets >= 1.
  CumulativeTable(const int64_t* cumulative, int64_t num_classes, const int64_t* index,
                  int64_t num_buckets, int64_t num_strata);

  int64_t num_classes() const { return num_classes_; }
  int64_t stratum() const { return stratum_; }
  int64_t Cumulative(int64_t c) const { return cumulative_[c]; }

  // The class c with cumulative[c] <= x < cumulative[c + 1]: the first class that ends above x.
  // Its end is in the bucket of x or later and its start in that bucket or earlier, so index[g]
  // <= c <= index[g + 1].
  int64_t Find(int64_t x) const {
    const int64_t bucket = Bucket(x, buckets_per_mass_, num_buckets_);
    int64_t c = std::clamp<int64_t>(index_[bucket], 0, num_classes_ - 1);
    int64_t last = std::clamp<int64_t>(index_[bucket + 1], c, num_classes_ - 1);
    while (c < last) {
      const int64_t middle = c + (last - c) / 2;
      if (cumulative_[middle + 1] <= x) {
        c = middle + 1;
      } else {
        last = middle;
      }
    }
    return c;
  }

  static double BucketsPerMass(int64_t num_buckets, int64_t total) {
    return static_cast<double>(num_buckets) / static_cast<double>(total);
  }

  // Never decreases with x. The search needs no other property of its rounding.
  static int64_t Bucket(int64_t x, double buckets_per_mass, int64_t num_buckets) {
    const auto bucket = static_cast<int64_t>(static_cast<double>(x) * buckets_per_mass);
    return std::clamp<int64_t>(bucket, 0, num_buckets - 1);
  }

 private:
  const int64_t* cumulative_;
  int64_t num_classes_;
  const int64_t* index_;
  int64_t num_buckets_;
  int64_t stratum_;
  double buckets_per_mass_;
};

// Fills the two arrays. `masses` may be `cumulative + 1`. REQUIRES: masses are positive, and
// their sum is below 2^62.
void BuildCumulativeTable(const int64_t* masses, int64_t num_classes, int64_t num_buckets,
                          int64_t* cumulative, int64_t* index);

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_SAMPLING_CUMULATIVE_TABLE_H_
