// The order in which the gradients of one row are summed.
//
// Runs of kRunLength gradients, the last one shorter, are summed from left to right, then
// their sums from left to right. A row has hundreds of thousands where an `Embedding` is fed
// padding: a GPU sums their runs at the same time, and rounding errors add up less.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_ROWS_ROW_RUNS_H_
#define LARGEOUT_CUSTOM_OPS_CORE_ROWS_ROW_RUNS_H_

#include <cstdint>

namespace largeout {

inline constexpr int32_t kRunLength = 64;

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_ROWS_ROW_RUNS_H_
