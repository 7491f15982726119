// The ids that a block has met: like core/lsh/met_ids.h, for many threads at once.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_MET_SET_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_MET_SET_H_

#include <cstdint>

#include "custom_ops/core/base/host_device.h"
#include "custom_ops/cuda/block.h"
#include "custom_ops/cuda/block_sums.h"

namespace largeout {
namespace cuda {

// If *word is `old`, sets it to `fresh`. Returns its previous value.
LARGEOUT_DEVICE inline uint32_t CompareAndSwap(uint32_t* word, uint32_t old, uint32_t fresh) {
#ifdef __CUDA_ARCH__
  return atomicCAS(word, old, fresh);
#else
  const uint32_t before = *word;
  if (before == old) *word = fresh;
  return before;
#endif
}

LARGEOUT_DEVICE inline void LowerTo(uint32_t* word, uint32_t value) {
#ifdef __CUDA_ARCH__
  atomicMin(word, value);
#else
  if (value < *word) *word = value;
#endif
}

LARGEOUT_DEVICE inline void AddOne(uint32_t* word) {
#ifdef __CUDA_ARCH__
  atomicAdd(word, 1u);
#else
  ++*word;
#endif
}

// A hash table with open addressing. The slot of an id depends on the order of the threads, but
// the results of the functions below do not.
struct MetSet {
  static constexpr uint32_t kEmpty = 0xffffffffu;
  static constexpr int64_t kNowhere = -1;

  uint32_t* keys;    // [capacity]: ids, or kEmpty
  uint32_t* marks;   // [capacity]: 0: known; else 1 + the claiming thread, or kEmpty
  uint32_t* counts;  // [capacity], or null
  int64_t capacity;  // a power of two, at least twice the number of ids

  static LARGEOUT_HOST_DEVICE int64_t CapacityFor(int64_t num_ids) {
    int64_t capacity = 2;
    while (capacity < 2 * num_ids) capacity *= 2;
    return capacity;
  }

  template <class Block>
  LARGEOUT_DEVICE void Clear(const Block& block) const {
    block.ForEachThread([&](int t) {
      for (int64_t i = t; i < capacity; i += block.size()) {
        keys[i] = kEmpty;
        marks[i] = kEmpty;
        if (counts != nullptr) counts[i] = 0;
      }
    });
  }

  LARGEOUT_DEVICE int64_t Start(int64_t id) const {
    const uint64_t mixed = static_cast<uint64_t>(id) * uint64_t{0x9E3779B97F4A7C15};
    return static_cast<int64_t>(mixed >> 32) & (capacity - 1);
  }

  // The slot of the id, which is created if necessary. REQUIRES: 0 <= id < 2^31.
  LARGEOUT_DEVICE int64_t Find(int64_t id) const {
    const auto key = static_cast<uint32_t>(id);
    for (int64_t i = Start(id);; i = (i + 1) & (capacity - 1)) {
      const uint32_t before = CompareAndSwap(&keys[i], kEmpty, key);
      if (before == kEmpty || before == key) return i;
    }
  }

  // Whether the set contains the id. REQUIRES: no thread inserts ids in this phase.
  LARGEOUT_DEVICE bool Contains(int64_t id) const {
    for (int64_t i = Start(id);; i = (i + 1) & (capacity - 1)) {
      if (keys[i] == kEmpty) return false;
      if (keys[i] == static_cast<uint32_t>(id)) return true;
    }
  }

  // Marks the id as known, so that it is never new.
  LARGEOUT_DEVICE void Exclude(int64_t id) const { LowerTo(&marks[Find(id)], 0); }
};

// Inserts one id per thread: id_of(t) for t < block.size(), or none if it is negative. Calls
// emit(r, slot) for the r-th new id, in the order of the threads; of equal ids, the first one
// is new. Returns the number of new ids. ranks: in shared memory, one per thread.
template <class Block, class IdOf, class Emit>
LARGEOUT_DEVICE int64_t TakeNew(const Block& block, const MetSet& met, const IdOf& id_of,
                                const Emit& emit, int64_t* ranks) {
  typename Block::template PerThread<int64_t> slot(block);
  typename Block::template PerThread<int> is_new(block);
  block.ForEachThread([&](int t) {
    const int64_t id = id_of(t);
    slot[t] = id < 0 ? MetSet::kNowhere : met.Find(id);
    if (id < 0) return;
    LowerTo(&met.marks[slot[t]], static_cast<uint32_t>(t + 1));
    if (met.counts != nullptr) AddOne(&met.counts[slot[t]]);
  });
  block.ForEachThread([&](int t) {
    is_new[t] =
        slot[t] != MetSet::kNowhere && met.marks[slot[t]] == static_cast<uint32_t>(t + 1);
    ranks[t] = is_new[t];
  });
  const int64_t num_new = SumBefore(block, ranks);
  block.ForEachThread([&](int t) {
    if (!is_new[t]) return;
    met.marks[slot[t]] = 0;
    emit(ranks[t], slot[t]);
  });
  return num_new;
}

}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_MET_SET_H_
