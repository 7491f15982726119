// What packed_rows.cc and the vectorised packed_rows_simd.cc say to each other.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_PACKED_ROWS_SIMD_H_
#define LARGEOUT_CUSTOM_OPS_CORE_PACKED_ROWS_SIMD_H_

#include <cstdint>

#include "custom_ops/core/class_scan_types.h"

namespace largeout {

// Widths of packed rows and queries are multiples of this.
inline constexpr int64_t kPackedMultiple = 32;

// What turns the products of codes into logits: product * scale * (the query's) + bias.
struct RowScale {
  float scale;
  float bias;  // -inf for rows that have no logit: such with NaN or infinite numbers
};

struct PackedRows {
  int8_t* codes;     // [num_rows, width]
  RowScale* scales;  // [num_rows]
  int64_t num_rows;
  int64_t width;
};

struct PackedQueries {
  int16_t* codes;  // [num_queries, width]
  float* scales;   // [num_queries]; NaN for queries with NaN or infinite numbers
  int64_t width;
  float most;  // codes are in [-most, most]
};

#define LARGEOUT_DECLARE_PACKED_ROWS(level)                                                   \
  namespace level {                                                                           \
  /* Row i of the matrix becomes packed row places[i], or i if `places` is null, */           \
  /* for i in [begin, end). */                                                                \
  void PackRows(const ClassMatrix& matrix, const int32_t* places, int64_t begin, int64_t end, \
                const PackedRows& packed);                                                    \
  void PackQueries(const float* features, int64_t dim, int64_t begin, int64_t end,            \
                   const PackedQueries& packed);                                              \
  }
LARGEOUT_DECLARE_PACKED_ROWS(generic)
LARGEOUT_DECLARE_PACKED_ROWS(avx2)
LARGEOUT_DECLARE_PACKED_ROWS(avx512)
#undef LARGEOUT_DECLARE_PACKED_ROWS

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_PACKED_ROWS_SIMD_H_
