// Rows of a class matrix that count as rows of length 1.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_CLASS_SCAN_UNIT_ROWS_H_
#define LARGEOUT_CUSTOM_OPS_CORE_CLASS_SCAN_UNIT_ROWS_H_

#include <cstdint>
#include <vector>

#include "custom_ops/core/class_scan/class_scan_types.h"

namespace largeout {

// The sum of squares of a row; 0 if it is not finite.
double SquaredNorm(const float* row, int64_t dim);

// The factor that scales a row to length 1; 1e6 for rows shorter than 1e-6.
double InverseLength(const float* row, int64_t dim);

// The rows of a matrix as a pass scores them: its own rows, or copies of length 1.
class ScoredRows {
 public:
  explicit ScoredRows(const ClassMatrix& matrix) : matrix_(matrix) {}

  // A matrix without `unit_length` that is valid for rows [begin, end), until the next call.
  ClassMatrix Rows(int64_t begin, int64_t end);

  // Calls use(rows, first, last) for consecutive parts of [begin, end). Each part is a multiple
  // of kBlockClasses rows, except for the last.
  template <class Use>
  void ForEachPart(int64_t begin, int64_t end, const Use& use) {
    const int64_t step = matrix_.unit_length ? kPartRows : end - begin;
    for (int64_t first = begin; first < end; first += step) {
      const int64_t last = first + step < end ? first + step : end;
      use(Rows(first, last), first, last);
    }
  }

 private:
  static constexpr int64_t kPartRows = 4 * 96;  // copies that stay in a core's cache

  const ClassMatrix& matrix_;
  std::vector<float> copies_;
};

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_CLASS_SCAN_UNIT_ROWS_H_
