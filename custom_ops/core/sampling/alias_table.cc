#include "custom_ops/core/sampling/alias_table.h"

namespace largeout {

// Scaled by num_classes, the masses fill num_classes slots of kAliasTotal. `light` iterates
// over the classes that leave room in their slot, `heavy` over the classes that exceed theirs.
// `left` is the mass of the heavy class that is still to be placed. The heavy class fills light
// slots until the rest fits into its own slot, and the next heavy class gets the room there.
// Integer sums are exact, so the last class fits.
void BuildAliasTable(const int64_t* masses, int64_t num_classes, AliasSlot* slots) {
  using Scaled = __int128;
  const auto scaled = [&](int64_t c) { return static_cast<Scaled>(masses[c]) * num_classes; };
  const auto next_light = [&](int64_t c) {
    while (c < num_classes && scaled(c) >= kAliasTotal) ++c;
    return c;
  };
  const auto next_heavy = [&](int64_t c) {
    while (c < num_classes && scaled(c) <= kAliasTotal) ++c;
    return c;
  };
  for (int64_t c = 0; c < num_classes; ++c) slots[c] = {kAliasTotal, c};
  int64_t light = next_light(0);
  int64_t heavy = next_heavy(0);
  Scaled left = heavy < num_classes ? scaled(heavy) : 0;
  while (heavy < num_classes) {
    if (left < kAliasTotal) {
      const int64_t next = next_heavy(heavy + 1);
      slots[heavy] = {static_cast<int64_t>(left), next};
      left += scaled(next) - kAliasTotal;
      heavy = next;
    } else if (light < num_classes) {
      slots[light] = {static_cast<int64_t>(scaled(light)), heavy};
      left -= kAliasTotal - scaled(light);
      light = next_light(light + 1);
    } else {
      break;
    }
  }
}

}  // namespace largeout
