// The loops of bfloat16_rows.h, at each level of simd_level.h.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_BASE_BFLOAT16_ROWS_SIMD_H_
#define LARGEOUT_CUSTOM_OPS_CORE_BASE_BFLOAT16_ROWS_SIMD_H_

#include <cstdint>

namespace largeout {

// A table whose rows are updated in float32 and rounded at random. The random bits of an
// element depend only on the seed, the step, its row and its column.
struct RoundedRows {
  uint16_t* rows;  // [num_rows, dim]; null if the table is float32
  uint64_t seed;
  uint64_t step;
};

#define LARGEOUT_DECLARE_BFLOAT16_ROWS(level)                                                 \
  namespace level {                                                                           \
  void WidenRow(const uint16_t* row, int64_t dim, float* to);                                 \
  void StoreRounded(const float* values, int64_t dim, int64_t row, const RoundedRows& table); \
  }

LARGEOUT_DECLARE_BFLOAT16_ROWS(generic)
LARGEOUT_DECLARE_BFLOAT16_ROWS(avx2)
LARGEOUT_DECLARE_BFLOAT16_ROWS(avx512)

#undef LARGEOUT_DECLARE_BFLOAT16_ROWS

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_BASE_BFLOAT16_ROWS_SIMD_H_
