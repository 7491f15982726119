// Which classes a query met most often.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_MOST_MET_H_
#define LARGEOUT_CUSTOM_OPS_CORE_MOST_MET_H_

#include <cstdint>
#include <vector>

#include "custom_ops/core/met_ids.h"

namespace largeout {

// The longest stretch s such that the sum of min(size, s) stays within
// `max_total`, to rounding down; the largest size or more where all of it fits.
int64_t LongestStretch(const std::vector<int64_t>& sizes, int64_t max_total);

// The classes that a MetIds has counted, in the order in which they were met.
class MostMetList {
 public:
  explicit MostMetList(int64_t max_ids) : ids_(max_ids + 1) {}

  void Clear() { size_ = 0; }

  // To be called at each count of an id; blocked ids are left out.
  void Add(int32_t id, int32_t count) {
    ids_[size_] = id;  // without a branch: whether an id is new cannot be foretold
    size_ += count == 1;
  }

  int64_t size() const { return size_; }

  // Writes the up to `num_wanted` ids with the highest counts, by falling count,
  // and returns how many. Those with equal counts are in the order in which they
  // were met, but of those at the last count the lower ids are taken.
  int64_t Write(MetIds* met, int64_t num_wanted, int64_t* ids);

 private:
  int64_t size_ = 0;
  std::vector<int32_t> ids_;
  std::vector<int32_t> counts_;      // of ids_
  std::vector<int64_t> next_;        // place of the next id with so many counts
  std::vector<int32_t> last_group_;  // those with the last count
};

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_MOST_MET_H_
