// The interface between packed_rows.cc and the vectorised packed_rows_simd.cc.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_CLASS_SCAN_PACKED_ROWS_SIMD_H_
#define LARGEOUT_CUSTOM_OPS_CORE_CLASS_SCAN_PACKED_ROWS_SIMD_H_

#include <cstdint>

#include "custom_ops/core/base/rounding.h"
#include "custom_ops/core/class_scan/class_scan_types.h"

namespace largeout {

inline constexpr int kGroupRows = 16;     // rows whose codes are interleaved
inline constexpr int kCodesTogether = 4;  // of one row, before the codes of the next row
// Widths of packed rows and queries are multiples of this.
inline constexpr int kPackedMultiple = 16;

// The numbers of a row are in [-kMostOfRow, kMostOfRow]; its codes are the numbers plus
// kMostOfRow.
inline constexpr int kMostOfRow = 127;
inline constexpr int kCodeOfZero = 128;
// The numbers of queries are in [-kMostOfQuery, kMostOfQuery], and are equal to their codes.
inline constexpr int kMostOfQuery = 64;

inline int64_t NumGroups(int64_t num_rows) { return CeilDiv(num_rows, kGroupRows); }
inline int64_t NumCodes(int64_t num_rows, int64_t width) {
  return NumGroups(num_rows) * kGroupRows * width;
}
inline int64_t NumScales(int64_t num_rows) { return NumGroups(num_rows) * kGroupRows * 2; }
inline int64_t NumBounds(int64_t num_rows) { return NumGroups(num_rows) * kGroupRows * 3; }

// The sizes of the arrays for all classes: their codes, and their scales followed by their
// bounds.
struct PackedSizes {
  int64_t codes, scales;
};
inline PackedSizes SizesOfPacked(int64_t num_rows, int64_t dim) {
  return {NumCodes(num_rows, RoundUp(dim, kPackedMultiple)),
          NumScales(num_rows) + NumBounds(num_rows)};
}

// Rows and queries of larger norms, and larger biases, have no bounds. This keeps all products
// and sums below from overflowing.
inline constexpr float kMostBounded = 1e18f;

// Row i is row i % kGroupRows of group i / kGroupRows. The padding rows of the last group have
// no logit.
struct PackedRows {
  // [num_groups, width / kCodesTogether, kGroupRows, kCodesTogether]
  uint8_t* codes;
  // [num_groups, 2, kGroupRows]: scales and biases. A logit is the sum of the products of the
  // numbers of the row and of the query, times both scales, plus the bias. The bias is -inf for
  // rows that have no logit because they are not finite.
  float* scales;
  int64_t num_rows;
  int64_t width;
  // Null, or [num_groups, 3, kGroupRows]: errors, norms and high biases. They bound the float32
  // logit, in whatever order it is summed: it is at most the sum of products times both scales
  // + error * norm of the query + norm * error of the query + high bias. The high bias is -inf
  // for padding and for rows with NaN or a bias of NaN or -inf, whose logits are NaN or -inf.
  // It is inf for rows without bounds.
  float* bounds = nullptr;

  int64_t num_groups() const { return NumGroups(num_rows); }
  uint8_t* group_codes(int64_t group) const { return codes + group * kGroupRows * width; }
  float* group_scales(int64_t group) const { return scales + group * 2 * kGroupRows; }
  float* group_biases(int64_t group) const { return group_scales(group) + kGroupRows; }
  float* group_bounds(int64_t group) const { return bounds + group * 3 * kGroupRows; }
};

// Writes the floats that the codes of a row represent to `to` [dim].
inline __attribute__((always_inline)) void UnpackRow(const PackedRows& rows, int64_t row,
                                                     int64_t dim, float* to) {
  const int64_t group = row / kGroupRows, place = row % kGroupRows;
  const uint8_t* codes = rows.group_codes(group) + place * kCodesTogether;
  const float scale = rows.group_scales(group)[place];
  for (int64_t k = 0; k < dim; ++k) {
    const int64_t at = k / kCodesTogether * kGroupRows * kCodesTogether + k % kCodesTogether;
    to[k] = static_cast<float>(codes[at] - kCodeOfZero) * scale;
  }
}

// The bias of a row; -inf if the row or its bias is not finite.
inline __attribute__((always_inline)) float BiasOfRow(const PackedRows& rows, int64_t row) {
  return rows.group_biases(row / kGroupRows)[row % kGroupRows];
}

struct PackedQueries {
  int8_t* codes;  // [num_queries, width]
  float* scales;  // [num_queries]; NaN for queries that are not finite
  int32_t* sums;  // [num_queries], sums of the codes
  float* norms;   // [num_queries], upper bounds; infinite or NaN if the query is not finite
  float* errors;  // [num_queries], for bounds of PackedRows
  int64_t width;
  float most;  // codes are in [-most, most]
};

#define LARGEOUT_DECLARE_PACKED_ROWS(level)                                                  \
  namespace level {                                                                          \
  /* Packs groups [begin, end). Packed row i is row ids[i] of the matrix, or i if `ids` is   \
     null. wide: scratch [kGroupRows, dim] for rows in bfloat16, else null. */               \
  void PackGroups(const ClassMatrix& matrix, const int32_t* ids, int64_t begin, int64_t end, \
                  const PackedRows& packed, float* wide = nullptr);                          \
  void PackQueries(const float* features, int64_t dim, int64_t begin, int64_t end,           \
                   const PackedQueries& packed);                                             \
  }
LARGEOUT_DECLARE_PACKED_ROWS(generic)
LARGEOUT_DECLARE_PACKED_ROWS(avx2)
LARGEOUT_DECLARE_PACKED_ROWS(avx512)
#undef LARGEOUT_DECLARE_PACKED_ROWS

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_CLASS_SCAN_PACKED_ROWS_SIMD_H_
