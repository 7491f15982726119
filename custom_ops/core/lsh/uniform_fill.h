// Draws distinct classes uniformly from those that a query has not met.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_LSH_UNIFORM_FILL_H_
#define LARGEOUT_CUSTOM_OPS_CORE_LSH_UNIFORM_FILL_H_

#include <cstdint>

#include "custom_ops/core/base/host_device.h"
#include "custom_ops/core/base/philox.h"
#include "custom_ops/core/lsh/met_ids.h"

namespace largeout {

// The random bits of one query. They depend on the seed, the number of the query and the number
// of the draw. Draws that fill up start at kFirstFillDraw.
struct QueryDraws {
  PhiloxSeed seed;
  int64_t query;

  static constexpr int64_t kFirstFillDraw = int64_t{1} << 31;

  LARGEOUT_HOST_DEVICE DrawBits operator()(int64_t draw) const {
    return BitsOfDraw(seed, static_cast<uint64_t>(query) << 32 | static_cast<uint64_t>(draw));
  }
};

// Writes up to `count` distinct ids that are not in `met`, and inserts them. If fewer classes
// are left, the rest is -1. Returns the number of ids written. num_met: an upper bound of the
// number of ids of [0, num_classes) in `met`. O(count + num_met).
int64_t FillUniformly(int64_t num_classes, int64_t num_met, int64_t count,
                      const QueryDraws& draws, MetIds* met, int64_t* ids);

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_LSH_UNIFORM_FILL_H_
