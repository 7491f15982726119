#include "custom_ops/core/class_scan/unit_rows.h"

#include <algorithm>
#include <cmath>

#include "custom_ops/core/base/simd_level.h"
#include "custom_ops/core/class_scan/class_scan_simd.h"
#include "custom_ops/core/class_scan/unit_rows_simd.h"

namespace largeout {

double SquaredNorm(const float* row, int64_t dim) {
  double sum = 0.0;
  for (int64_t k = 0; k < dim; ++k) sum += double{row[k]} * row[k];
  return std::isfinite(sum) ? sum : 0.0;
}

double InverseLength(const float* row, int64_t dim) {
  constexpr double kLeastSquare = 1e-12;
  float square;
  LARGEOUT_SIMD_DISPATCH(SumRowSquares, row, dim, &square);
  const bool fits = 1e-20f < square && square < 1e30f;
  const double sum = fits ? square : SquaredNorm(row, dim);
  return 1.0 / std::sqrt(std::max(sum, kLeastSquare));
}

ClassMatrix ScoredRows::Rows(int64_t begin, int64_t end) {
  static_assert(kPartRows % kBlockClasses == 0, "a part is so many whole blocks");
  if (!matrix_.unit_length) return matrix_;
  const int64_t dim = matrix_.dim;
  copies_.resize(std::max<int64_t>(copies_.size(), (end - begin) * dim));
  for (int64_t c = begin; c < end; ++c) {
    const float* row = matrix_.embeddings + c * dim;
    const float factor = static_cast<float>(InverseLength(row, dim));
    LARGEOUT_SIMD_DISPATCH(ScaleRow, row, dim, factor, copies_.data() + (c - begin) * dim);
  }
  ClassMatrix rows = matrix_;
  rows.unit_length = false;
  rows.embeddings = copies_.data() - begin * dim;
  return rows;
}

}  // namespace largeout
