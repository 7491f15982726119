// Selects the classes that a block met most often, in the order of core/lsh/most_met.h.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_MOST_MET_BODY_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_MOST_MET_BODY_H_

#include <cstdint>

#include "custom_ops/cuda/block.h"
#include "custom_ops/cuda/block_sums.h"
#include "custom_ops/cuda/met_set.h"

namespace largeout {
namespace cuda {

// Sorts `size` keys, a power of two, by Batcher's bitonic network.
template <class Block>
LARGEOUT_DEVICE void SortKeys(const Block& block, int64_t size, uint64_t* keys) {
  for (int64_t run = 2; run <= size; run *= 2) {
    for (int64_t apart = run / 2; apart > 0; apart /= 2) {
      block.ForEachThread([&](int t) {
        for (int64_t i = t; i < size; i += block.size()) {
          const int64_t j = i ^ apart;
          const bool rising = (i & run) == 0;
          if (j < i || (keys[i] > keys[j]) != rising) continue;
          const uint64_t key = keys[i];
          keys[i] = keys[j];
          keys[j] = key;
        }
      });
    }
  }
}

// places [size]: slots of `met` in the order in which they were met.
template <class Block>
class MostMetOfBlock {
 public:
  LARGEOUT_DEVICE MostMetOfBlock(const Block& block, const MetSet& met, const uint32_t* places,
                                 int64_t size, int64_t* sums)
      : block_(block), met_(met), places_(places), size_(size), sums_(sums) {}

  // Writes the `wanted` ids with the highest counts, by decreasing count, then in the order in
  // which they were met. Among the ids with the last count, the lower ids are taken. order:
  // room for order_size keys, a power of two. REQUIRES: wanted <= size, wanted <= order_size.
  LARGEOUT_DEVICE void Write(int64_t wanted, int64_t num_classes, uint64_t* order,
                             int64_t order_size, int64_t* ids) const {
    if (wanted == 0) return;
    const int64_t last = LastCount(wanted);
    const int64_t tail = wanted - CountIf([&](int64_t i) { return CountOf(i) > last; });
    const int64_t highest = HighestTaken(last, tail, num_classes);
    int64_t found = 0;
    for (int64_t tile = 0; tile < size_; tile += block_.size()) {
      found += Choose(tile, last, highest, order + found);
    }
    block_.ForEachThread([&](int t) {
      for (int64_t i = wanted + t; i < order_size; i += block_.size()) order[i] = ~uint64_t{0};
    });
    SortKeys(block_, order_size, order);
    block_.ForEachThread([&](int t) {
      for (int64_t i = t; i < wanted; i += block_.size()) {
        ids[i] = met_.keys[places_[order[i] & 0xffffffffu]];
      }
    });
  }

 private:
  LARGEOUT_DEVICE int64_t CountOf(int64_t i) const { return met_.counts[places_[i]]; }
  LARGEOUT_DEVICE int64_t IdOf(int64_t i) const { return met_.keys[places_[i]]; }

  template <class Predicate>
  LARGEOUT_DEVICE int64_t CountIf(const Predicate& predicate) const {
    block_.ForEachThread([&](int t) {
      sums_[t] = 0;
      for (int64_t i = t; i < size_; i += block_.size()) sums_[t] += predicate(i);
    });
    return SumOf(block_, sums_);
  }

  // The highest count that at least `wanted` ids reach.
  LARGEOUT_DEVICE int64_t LastCount(int64_t wanted) const {
    const auto enough = [&](int64_t count) {
      return CountIf([&](int64_t i) { return CountOf(i) >= count; }) >= wanted;
    };
    int64_t low = 1;  // all ids have been met
    while (enough(2 * low)) low *= 2;
    for (int64_t step = low / 2; step > 0; step /= 2) {
      if (enough(low + step)) low += step;
    }
    return low;
  }

  // The highest of the `tail` lowest ids with the last count.
  LARGEOUT_DEVICE int64_t HighestTaken(int64_t last, int64_t tail, int64_t num_classes) const {
    const auto up_to = [&](int64_t id) {
      return CountIf([&](int64_t i) { return CountOf(i) == last && IdOf(i) <= id; });
    };
    int64_t low = 0, high = num_classes - 1;
    if (up_to(high) == tail) return high;
    while (low < high) {
      const int64_t middle = low + (high - low) / 2;
      if (up_to(middle) >= tail) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    return low;
  }

  // Appends the keys of the selected ids of a tile. The keys sort by decreasing count, then by
  // increasing place.
  LARGEOUT_DEVICE int64_t Choose(int64_t tile, int64_t last, int64_t highest,
                                 uint64_t* order) const {
    typename Block::template PerThread<int> chosen(block_);
    block_.ForEachThread([&](int t) {
      const int64_t i = tile + t;
      chosen[t] =
          i < size_ && (CountOf(i) > last || (CountOf(i) == last && IdOf(i) <= highest));
      sums_[t] = chosen[t];
    });
    const int64_t num_chosen = SumBefore(block_, sums_);
    block_.ForEachThread([&](int t) {
      if (!chosen[t]) return;
      const auto falling = static_cast<uint32_t>(~CountOf(tile + t));
      order[sums_[t]] = static_cast<uint64_t>(falling) << 32 | static_cast<uint64_t>(tile + t);
    });
    return num_chosen;
  }

  const Block& block_;
  const MetSet& met_;
  const uint32_t* const places_;
  const int64_t size_;
  int64_t* const sums_;
};

}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_MOST_MET_BODY_H_
