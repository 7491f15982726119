// The classes that an op on row_dots.h reads from bfloat16 rows, as a small float32 matrix.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_ROWS_WIDENED_CLASSES_H_
#define LARGEOUT_CUSTOM_OPS_CORE_ROWS_WIDENED_CLASSES_H_

#include <cstdint>
#include <vector>

#include "custom_ops/core/base/parallel.h"
#include "custom_ops/core/class_scan/class_scan_types.h"
#include "custom_ops/core/rows/row_dots.h"

namespace largeout {

// A matrix of the distinct classes among own and shared ones, in ascending order, and the ids
// as rows of it. The functions of row_dots.h but RowDotsRowGradient give the results of a
// float32 matrix with the same rows. Refers to its own memory, so it cannot be copied.
class WidenedClasses {
 public:
  // REQUIRES: the rows of the matrix are in bfloat16; ids as in row_dots.h.
  WidenedClasses(const ClassMatrix& matrix, const OwnClasses& own, const SharedClasses& shared,
                 const ParallelFor& parallel);
  WidenedClasses(const WidenedClasses&) = delete;
  WidenedClasses& operator=(const WidenedClasses&) = delete;

  ClassMatrix matrix() const;
  OwnClasses own() const { return {own_ids_.data(), batch_, per_row_}; }
  SharedClasses shared() const {
    return {shared_ids_.data(), static_cast<int64_t>(shared_ids_.size())};
  }

 private:
  int64_t batch_, per_row_, dim_;
  bool has_bias_;
  std::vector<int64_t> own_ids_, shared_ids_;
  std::vector<float> rows_, bias_;
};

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_ROWS_WIDENED_CLASSES_H_
