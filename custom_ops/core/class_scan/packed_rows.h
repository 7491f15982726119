// Rows of 8-bit codes, in the order in which they are read. They take a quarter of the bytes of
// floats, and scoring them takes a tenth of the time.
//
// The codes of a row are integers up to 127, the row divided by its scale: its largest
// magnitude over 127. The codes of a query are up to 64, so that the sum of two products of
// codes always fits into 16 bits. The error of a logit is about 1.4 % of |row| |query| /
// sqrt(dim).

#ifndef LARGEOUT_CUSTOM_OPS_CORE_CLASS_SCAN_PACKED_ROWS_H_
#define LARGEOUT_CUSTOM_OPS_CORE_CLASS_SCAN_PACKED_ROWS_H_

#include <cstdint>
#include <vector>

#include "custom_ops/core/base/parallel.h"
#include "custom_ops/core/base/rounding.h"
#include "custom_ops/core/class_scan/class_scan.h"
#include "custom_ops/core/class_scan/packed_rows_simd.h"

namespace largeout {

// The padded width of packed rows of `dim` numbers.
inline int64_t PackedWidth(int64_t dim) { return RoundUp(dim, kPackedMultiple); }

// Packs row ids[i] of the matrix, or row i if `ids` is null, into row i of `packed`. Rows that
// are not finite get the bias -inf. REQUIRES: `ids` are packed.num_rows classes of the matrix.
void PackAllRows(const ClassMatrix& matrix, const int32_t* ids, const ParallelFor& parallel,
                 const PackedRows& packed);

// The largest code of a query of this width: sums of products fit into 32 bits.
int64_t MostOfQuery(int64_t width);

class QueryCodes {
 public:
  QueryCodes(const Features& features, int64_t dim, const ParallelFor& parallel);
  const PackedQueries& view() const { return view_; }
  // Whether the bounds of PackedRows hold for the logits of these queries.
  bool AreBounded() const;

 private:
  std::vector<int8_t> codes_;
  std::vector<float> scales_, norms_, errors_;
  std::vector<int32_t> sums_;
  PackedQueries view_;
};

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_CLASS_SCAN_PACKED_ROWS_H_
