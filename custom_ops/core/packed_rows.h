// Rows at 8 bits a number, in the order in which they are read: a quarter of the
// bytes, and a fifth of the time to score them where memory is the limit.
//
// A row is codes times its largest magnitude over 127, a query the same with more
// bits. The error of a logit is about 0.3 % of |row| |query| / sqrt(dim).

#ifndef LARGEOUT_CUSTOM_OPS_CORE_PACKED_ROWS_H_
#define LARGEOUT_CUSTOM_OPS_CORE_PACKED_ROWS_H_

#include <cstdint>
#include <vector>

#include "custom_ops/core/class_scan.h"
#include "custom_ops/core/packed_rows_simd.h"
#include "custom_ops/core/parallel.h"

namespace largeout {

// The width of packed rows of `dim` numbers.
inline int64_t PackedWidth(int64_t dim) {
  return (dim + kPackedMultiple - 1) / kPackedMultiple * kPackedMultiple;
}

// Packs row i of the matrix into row places[i] of `packed`, or into row i if `places`
// is null. Rows with numbers that are not finite get the bias -inf.
// REQUIRES: packed.num_rows == matrix.num_classes; `places` is a permutation.
void PackAllRows(const ClassMatrix& matrix, const int32_t* places, const ParallelFor& parallel,
                 const PackedRows& packed);

// Queries with as many bits as can be summed over a row.
class QueryCodes {
 public:
  QueryCodes(const Features& features, int64_t dim, const ParallelFor& parallel);
  const PackedQueries& view() const { return view_; }

 private:
  std::vector<int16_t> codes_;
  std::vector<float> scales_;
  PackedQueries view_;
};

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_PACKED_ROWS_H_
