// Rows at 8 bits a number, in the order in which they are read: a quarter of the
// bytes, and a tenth of the time to score them.
//
// A row is whole numbers up to 127 times its largest magnitude over 127, a query the same
// up to 64, so that two products of codes always fit into 16 bits. The error of a logit is
// about 1.4 % of |row| |query| / sqrt(dim).

#ifndef LARGEOUT_CUSTOM_OPS_CORE_CLASS_SCAN_PACKED_ROWS_H_
#define LARGEOUT_CUSTOM_OPS_CORE_CLASS_SCAN_PACKED_ROWS_H_

#include <cstdint>
#include <vector>

#include "custom_ops/core/base/parallel.h"
#include "custom_ops/core/base/rounding.h"
#include "custom_ops/core/class_scan/class_scan.h"
#include "custom_ops/core/class_scan/packed_rows_simd.h"

namespace largeout {

// The width of packed rows of `dim` numbers.
inline int64_t PackedWidth(int64_t dim) { return RoundUp(dim, kPackedMultiple); }

// Packs row ids[i] of the matrix, or row i if `ids` is null, into row i of `packed`.
// Rows with numbers that are not finite get the bias -inf.
// REQUIRES: `ids` are packed.num_rows classes of the matrix.
void PackAllRows(const ClassMatrix& matrix, const int32_t* ids, const ParallelFor& parallel,
                 const PackedRows& packed);

// The numbers of queries of so many codes are up to this: their products fit into 32 bits.
int64_t MostOfQuery(int64_t width);

class QueryCodes {
 public:
  QueryCodes(const Features& features, int64_t dim, const ParallelFor& parallel);
  const PackedQueries& view() const { return view_; }
  // Whether logits of the queries have the bounds of PackedRows.
  bool AreBounded() const;

 private:
  std::vector<int8_t> codes_;
  std::vector<float> scales_, norms_, errors_;
  std::vector<int32_t> sums_;
  PackedQueries view_;
};

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_CLASS_SCAN_PACKED_ROWS_H_
