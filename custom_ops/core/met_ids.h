// The classes that one query has met: a hash table whose size is that of the
// query, not of the classes, and which is emptied in O(1).

#ifndef LARGEOUT_CUSTOM_OPS_CORE_MET_IDS_H_
#define LARGEOUT_CUSTOM_OPS_CORE_MET_IDS_H_

#include <algorithm>
#include <cstdint>
#include <vector>

namespace largeout {

// Open addressing; a slot counts as empty if it was not written since Clear.
class MetIds {
 public:
  // REQUIRES: at most `max_ids` different ids are inserted between two Clears.
  explicit MetIds(int64_t max_ids) {
    while ((int64_t{1} << log_capacity_) < 2 * max_ids) ++log_capacity_;
    slots_.resize(size_t{1} << log_capacity_);
  }

  void Clear() {
    if (++generation_ == 0) {  // after 2^32 queries
      std::fill(slots_.begin(), slots_.end(), Slot{});
      generation_ = 1;
    }
  }

  // Whether the id was not there before.
  bool Insert(int32_t id) { return Count(id) == 1; }

  // How often the id has been counted now.
  int32_t Count(int32_t id) { return ++Find(id).count; }

  // Makes Count give negative numbers for the id.
  void Block(int32_t id) { Find(id).count = INT32_MIN; }

  // REQUIRES: the id is there.
  int32_t CountOf(int32_t id) { return Find(id).count; }

 private:
  struct Slot {
    uint32_t generation = 0;
    int32_t id = 0;
    int32_t count = 0;
  };

  Slot& Find(int32_t id) {
    const uint64_t mask = slots_.size() - 1;
    uint64_t i =
        static_cast<uint32_t>(id) * uint64_t{0x9E3779B97F4A7C15} >> (64 - log_capacity_);
    while (true) {
      Slot& slot = slots_[i];
      if (slot.generation != generation_) {
        slot = {generation_, id, 0};
        return slot;
      }
      if (slot.id == id) return slot;
      i = (i + 1) & mask;
    }
  }

  int log_capacity_ = 1;
  uint32_t generation_ = 0;
  std::vector<Slot> slots_;
};

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_MET_IDS_H_
