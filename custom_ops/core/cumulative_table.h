// Any distribution as a table of cumulative masses, for sampling.h.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_CUMULATIVE_TABLE_H_
#define LARGEOUT_CUSTOM_OPS_CORE_CUMULATIVE_TABLE_H_

#include <cstdint>

namespace largeout {

// A view of two arrays:
//   cumulative [num_classes + 1]  sums of IntegerMasses, from 0;
//   index [num_buckets + 1]       the line is cut into num_buckets equal
//       pieces; index[g] is the first class that ends in piece g or later.
// A class in piece g is among index[g] ... index[g + 1]: a few classes on
// average, so that Find takes O(1) in the mean, and O(log num_classes) at most.
// Find stays inside the arrays whatever they hold.
class CumulativeTable {
 public:
  // REQUIRES: num_classes >= 1, num_buckets >= 1, cumulative[num_classes] > 0.
  CumulativeTable(const int64_t* cumulative, int64_t num_classes, const int64_t* index,
                  int64_t num_buckets, int64_t stratum);

  int64_t num_classes() const { return num_classes_; }
  int64_t stratum() const { return stratum_; }
  int64_t Cumulative(int64_t c) const { return cumulative_[c]; }
  int64_t Find(int64_t x) const;

 private:
  const int64_t* cumulative_;
  int64_t num_classes_;
  const int64_t* index_;
  int64_t num_buckets_;
  int64_t stratum_;
  double buckets_per_mass_;
};

// Fills the two arrays. `masses` may be `cumulative + 1`.
// REQUIRES: masses positive, with a sum below 2^62.
void BuildCumulativeTable(const int64_t* masses, int64_t num_classes, int64_t num_buckets,
                          int64_t* cumulative, int64_t* index);

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_CUMULATIVE_TABLE_H_
