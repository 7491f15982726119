// Systems of linear equations, solved by Gaussian elimination with partial pivoting.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_LINEAR_ALGEBRA_LU_FACTORS_H_
#define LARGEOUT_CUSTOM_OPS_CORE_LINEAR_ALGEBRA_LU_FACTORS_H_

#include <cstdint>
#include <vector>

#include "custom_ops/core/base/parallel.h"
#include "custom_ops/core/linear_algebra/padded_matrix.h"

namespace largeout {

// The LU factors of a square matrix of floats or doubles. The bits do not depend on the number
// of threads.
template <class Number>
class LuFactors {
 public:
  // matrix: is overwritten, and must outlive this object.
  explicit LuFactors(PaddedMatrixOf<Number>* matrix)
      : matrix_(matrix), swapped_with_(matrix->rows()), inverse_pivots_(matrix->rows()) {}

  // Factors the matrix and returns the smallest absolute value of a pivot. Stops at the first
  // pivot that is less than min_pivot or NaN, and returns that pivot; the factors are then
  // unusable.
  double Factor(double min_pivot, const ParallelFor& parallel);

  // x [rows, width] becomes the inverse of the matrix times x. Call Factor first.
  void Solve(PaddedMatrixOf<Number>* x, const ParallelFor& parallel) const;

 private:
  bool FactorColumns(int64_t first, int64_t last, double min_pivot, double* smallest);
  void SwapWithLargest(int64_t k);
  void UpdateRest(int64_t first, int64_t last, const ParallelFor& parallel);
  void ScaleRowsByPivots();
  void SolveColumns(Number* x, int64_t stride, int64_t width) const;

  PaddedMatrixOf<Number>* const matrix_;
  std::vector<int64_t> swapped_with_;
  std::vector<Number> inverse_pivots_;
};

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_LINEAR_ALGEBRA_LU_FACTORS_H_
