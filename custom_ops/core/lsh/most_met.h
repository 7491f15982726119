// Finds the classes that a query met most often.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_LSH_MOST_MET_H_
#define LARGEOUT_CUSTOM_OPS_CORE_LSH_MOST_MET_H_

#include <cstdint>
#include <vector>

#include "custom_ops/core/lsh/met_ids.h"

namespace largeout {

// The largest length s for which the sum of min(size, s) is at most `max_total`, rounded down.
// If all sizes fit, at least the largest size.
int64_t LongestStretch(const std::vector<int64_t>& sizes, int64_t max_total);

// The classes that a MetIds has counted, in the order in which they were met.
class MostMetList {
 public:
  // REQUIRES: at most `max_ids` different ids are counted until the next Clear.
  void Clear(int64_t max_ids) {
    size_ = 0;
    if (static_cast<int64_t>(places_.size()) <= max_ids) places_.resize(max_ids + 1);
  }

  // Counts an id. Ignores blocked ids.
  void Count(int32_t id, MetIds* met) {
    const uint32_t place = met->PlaceOf(id);
    places_[size_] = place;  // without a branch, which could not be predicted
    size_ += met->CountAt(place) == 1;
  }

  int64_t size() const { return size_; }

  // Writes up to `num_wanted` ids with the highest counts, by decreasing count, and returns how
  // many. Among the ids with the last count, the lower ids are taken. Ids with equal counts are
  // in the order in which they were met.
  int64_t Write(const MetIds& met, int64_t num_wanted, int64_t* ids);

 private:
  // The highest of the num_taken lowest ids of the last group.
  int32_t HighestTaken(int64_t num_taken);

  int64_t size_ = 0;
  std::vector<uint32_t> places_;     // places in the MetIds
  std::vector<int32_t> counts_;      // counts of places_
  std::vector<int64_t> next_;        // next place in the list, per count
  std::vector<int32_t> last_group_;  // ids with the last count
  std::vector<int32_t> lowest_;      // last_group_, partly sorted
};

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_LSH_MOST_MET_H_
