// The classes that one query has met: a hash table whose size depends on the query, not on the
// number of classes, and which is cleared in O(1).

#ifndef LARGEOUT_CUSTOM_OPS_CORE_LSH_MET_IDS_H_
#define LARGEOUT_CUSTOM_OPS_CORE_LSH_MET_IDS_H_

#include <algorithm>
#include <cstdint>
#include <vector>

namespace largeout {

// Uses open addressing. A slot is one number: generation, count, id. It is empty if its
// generation is not that of the last Clear.
class MetIds {
 public:
  // Counts of blocked ids are at least this; other counts must stay below.
  static constexpr int32_t kBlocked = 1 << 19;

  // Removes all ids. REQUIRES: until the next Clear, at most `max_ids` <= 2^31 different ids
  // are inserted, and they are not negative.
  void Clear(int64_t max_ids) {
    if (static_cast<int64_t>(slots_.size()) < 2 * max_ids) return MakeRoom(2 * max_ids);
    generation_ += kOneGeneration;
    if (generation_ == 0) {  // the generation has overflowed
      std::fill(slots_.begin(), slots_.end(), 0);
      generation_ = kOneGeneration;
    }
  }

  // Inserts the id. Returns whether it is new.
  bool Insert(int32_t id) { return Count(id) == 1; }

  // Increments the count of the id and returns the new count.
  int32_t Count(int32_t id) { return CountAt(Find(id)); }

  // The place of the id, which is valid until the next Clear.
  uint32_t PlaceOf(int32_t id) { return static_cast<uint32_t>(Find(id)); }
  int32_t CountAt(uint64_t place) { return CountIn(slots_[place] += kOneCount); }
  int32_t CountedAt(uint64_t place) const { return CountIn(slots_[place]); }
  int32_t IdAt(uint64_t place) const { return static_cast<int32_t>(slots_[place]); }

  // Marks the id as met, but excludes it from the counted ids.
  void Block(int32_t id) { slots_[Find(id)] |= uint64_t{kBlocked} << 32; }

  // Prefetches the slot of the id.
  void Prefetch(int32_t id) const { __builtin_prefetch(&slots_[Start(id)], 1); }

 private:
  static constexpr uint64_t kOneCount = uint64_t{1} << 32;
  static constexpr uint64_t kCountBits = ((uint64_t{1} << 20) - 1) << 32;
  static constexpr uint64_t kOneGeneration = uint64_t{1} << 52;

  static int32_t CountIn(uint64_t slot) {
    return static_cast<int32_t>((slot & kCountBits) >> 32);
  }

  uint64_t Start(int32_t id) const {
    return static_cast<uint32_t>(id) * uint64_t{0x9E3779B97F4A7C15} >> (64 - log_capacity_);
  }

  void MakeRoom(int64_t size) {
    while ((int64_t{1} << log_capacity_) < size) ++log_capacity_;
    slots_.assign(size_t{1} << log_capacity_, 0);
    generation_ = kOneGeneration;
  }

  // Returns the slot of the id. Creates it if necessary.
  uint64_t Find(int32_t id) {
    const uint64_t key = generation_ | static_cast<uint32_t>(id);
    uint64_t i = Start(id);
    while (true) {
      const uint64_t slot = slots_[i];
      const bool empty = slot >> 52 != generation_ >> 52;
      if (empty | ((slot & ~kCountBits) == key)) {
        slots_[i] = empty ? key : slot;
        return i;
      }
      i = (i + 1) & (slots_.size() - 1);
    }
  }

  int log_capacity_ = 1;
  uint64_t generation_ = 0;
  std::vector<uint64_t> slots_ = std::vector<uint64_t>(2);
};

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_LSH_MET_IDS_H_
