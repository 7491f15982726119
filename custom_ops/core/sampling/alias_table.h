// Walker's alias table: a draw with replacement from any distribution in O(1). (Walker 1977;
// built as in Huebschle-Schneider and Sanders 2019, "Parallel weighted random sampling",
// section 4.1: one sweep without work lists.)

#ifndef LARGEOUT_CUSTOM_OPS_CORE_SAMPLING_ALIAS_TABLE_H_
#define LARGEOUT_CUSTOM_OPS_CORE_SAMPLING_ALIAS_TABLE_H_

#include <cstdint>

#include "custom_ops/core/base/philox.h"
#include "custom_ops/core/sampling/integer_masses.h"

namespace largeout {

// The sum of the masses of a table, and the size of a slot.
inline constexpr int64_t kAliasTotal = int64_t{1} << 60;

// Slots are drawn uniformly. Slot c gives class c with probability threshold / kAliasTotal and
// class `alias` otherwise.
struct AliasSlot {
  int64_t threshold;
  int64_t alias;
};

// Fills slots[c] for c < num_classes so that class c is drawn with probability masses[c] /
// kAliasTotal, exactly. REQUIRES: 0 <= masses[c], and the sum is kAliasTotal.
void BuildAliasTable(const int64_t* masses, int64_t num_classes, AliasSlot* slots);

inline int64_t DrawFromAliasTable(const AliasSlot* slots, int64_t num_classes, DrawBits bits) {
  const int64_t slot = ScaleBits(bits.first, num_classes);
  const bool own = ScaleBits(bits.second, kAliasTotal) < slots[slot].threshold;
  return own ? slot : slots[slot].alias;
}

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_SAMPLING_ALIAS_TABLE_H_
