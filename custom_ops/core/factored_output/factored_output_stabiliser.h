// Keeps U of a factored output layer well-conditioned; see factored_output_folds.h.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_FACTORED_OUTPUT_FACTORED_OUTPUT_STABILISER_H_
#define LARGEOUT_CUSTOM_OPS_CORE_FACTORED_OUTPUT_FACTORED_OUTPUT_STABILISER_H_

#include <cstdint>
#include <vector>

#include "custom_ops/core/base/arena.h"
#include "custom_ops/core/base/parallel.h"
#include "custom_ops/core/factored_output/factored_output_folds.h"
#include "custom_ops/core/linear_algebra/lu_factors.h"
#include "custom_ops/core/linear_algebra/padded_matrix.h"

namespace largeout {

// Checks the factors after a step. It allocates all memory when it is constructed, so that it
// cannot fail after the step is written.
class FactoredStabiliser {
 public:
  static constexpr int kMostFolds = 4;  // per Run

  // invert: whether to recompute the inverse of U.
  FactoredStabiliser(int64_t width, bool invert);

  FactoredStabiliser(const FactoredStabiliser&) = delete;
  FactoredStabiliser& operator=(const FactoredStabiliser&) = delete;

  // Whether Run would fold, given the sums of the squares of U and of its inverse.
  static bool IsDue(double mixing_squares, double inverse_squares, int64_t width);

  // U and its inverse are [width, width]. If a singular value of U differs from 1 by more than
  // a factor of 15 sqrt(width), or all are on one side of 1, Run brings them closer to 1.
  // REQUIRES: folds has room for kMostFolds more.
  void Run(double* mixing, double* inverse, const FactoredFolds& folds,
           const ParallelFor& parallel);

 private:
  void Invert(const double* mixing, double* inverse, const ParallelFor& parallel);
  bool FoldOnce(double most, double* mixing, double* inverse, const FactoredFolds& folds);
  bool FoldAll(double mean, double* mixing, double* inverse, double* fold) const;
  void FindSmall(const double* inverse);
  void FindLarge(const double* mixing);
  bool FoldSmall(double* mixing, double* fold);
  bool FoldLarge(double* mixing, double* fold);
  void Correct(int64_t place, const double* mixing, double* inverse);

  const int64_t width_;
  const bool invert_;
  Arena arena_;
  PaddedMatrix matrix_, new_inverse_;
  LuFactors<double> factors_;
  std::vector<double> x_, y_;  // [width]
};

// The sum of the squares.
double SumOfSquares(const double* numbers, int64_t size);

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_FACTORED_OUTPUT_FACTORED_OUTPUT_STABILISER_H_
