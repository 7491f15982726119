// Class rows in bfloat16, the upper 16 bits of float32: widened exactly, and rounded at random.
//
// With stochastic rounding, x becomes one of its two neighbours in bfloat16, and its expected
// value is x (Gupta et al. 2015, "Deep learning with limited numerical precision", section 3).
// So many updates that are each smaller than half the distance of the neighbours move a row as
// far as their sum. With rounding to the nearest neighbour they would not move it at all.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_BASE_BFLOAT16_ROWS_H_
#define LARGEOUT_CUSTOM_OPS_CORE_BASE_BFLOAT16_ROWS_H_

#include <cstdint>

#include "custom_ops/core/base/bfloat16_rows_simd.h"
#include "custom_ops/core/base/simd_level.h"

namespace largeout {

// `to` [dim] becomes row [dim] in float32.
inline void WidenRow(const uint16_t* row, int64_t dim, float* to) {
  LARGEOUT_SIMD_DISPATCH(WidenRow, row, dim, to);
}

// Row `row` of `table` becomes `values` [dim], rounded at random. Numbers that bfloat16 holds,
// infinities and NaN stay as they are. A finite number does not become infinite: above the
// largest bfloat16, it becomes this. With the draws of philox.h for the seed (table.seed,
// table.step), column 64 b + 8 p + i takes the p-th 16 bits of draw 8 (row ceil(dim / 64) + b)
// + i.
inline void StoreRounded(const float* values, int64_t dim, int64_t row,
                         const RoundedRows& table) {
  LARGEOUT_SIMD_DISPATCH(StoreRounded, values, dim, row, table);
}

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_BASE_BFLOAT16_ROWS_H_
