#include "custom_ops/core/lsh/most_met.h"

#include <algorithm>
#include <utility>

namespace largeout {

int64_t LongestStretch(const std::vector<int64_t>& sizes, int64_t max_total) {
  int64_t stretch = 0;
  while (true) {
    int64_t total = 0, num_longer = 0;
    for (int64_t size : sizes) {
      total += std::min(size, stretch);
      num_longer += size > stretch;
    }
    const int64_t more = num_longer == 0 ? 0 : (max_total - total) / num_longer;
    if (more == 0) return stretch;
    stretch += more;
  }
}

int32_t MostMetList::HighestTaken(int64_t num_taken) {
  lowest_ = last_group_;
  const auto highest = lowest_.begin() + (num_taken - 1);
  std::nth_element(lowest_.begin(), highest, lowest_.end());
  return *highest;
}

int64_t MostMetList::Write(const MetIds& met, int64_t num_wanted, int64_t* ids) {
  const int64_t wanted = std::min(num_wanted, size());
  if (wanted == 0) return 0;
  counts_.resize(size_);
  for (int64_t i = 0; i < size_; ++i) counts_[i] = met.CountedAt(places_[i]);
  int32_t last = *std::max_element(counts_.begin(), counts_.end());
  next_.assign(last + 1, 0);
  for (int32_t count : counts_) ++next_[count];
  int64_t begin = 0;  // where the ids with count `last` start, which are at the end of the list
  for (; begin + next_[last] < wanted; --last) begin += std::exchange(next_[last], begin);
  last_group_.clear();
  for (int64_t i = 0; i < size_; ++i) {
    if (counts_[i] > last) ids[next_[counts_[i]]++] = met.IdAt(places_[i]);
    if (counts_[i] == last) last_group_.push_back(met.IdAt(places_[i]));
  }
  const int32_t highest = HighestTaken(wanted - begin);
  for (int32_t id : last_group_) {
    if (id <= highest) ids[begin++] = id;
  }
  return wanted;
}

}  // namespace largeout
