// The order in which the gradients of one row are summed.
//
// Runs of kRunLength gradients (the last run may be shorter) are summed from left to right,
// then the sums of the runs from left to right. The padding of an `Embedding` can give a row
// hundreds of thousands of gradients: in one long sum, rounding errors would accumulate more.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_ROWS_ROW_RUNS_H_
#define LARGEOUT_CUSTOM_OPS_CORE_ROWS_ROW_RUNS_H_

#include <cstdint>

namespace largeout {

inline constexpr int32_t kRunLength = 64;

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_ROWS_ROW_RUNS_H_
