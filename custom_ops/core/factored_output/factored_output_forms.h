// Two ways to compute the square matrices U, U^-1 and Q of a step. Their results are the same
// except for rounding. The numbers of their multiplications, including those of the scores and
// the gradient, are
//
//   small batch: 7 batch width^2 + 4 batch^2 width + batch^3 / 3,
//   large batch: 6 batch width^2 + 13/3 width^3,
//
// because the first works with matrices [batch, batch], the second with some [width, width].
// The names in formulas are those of factored_output.h.
//
// Each form has
//
//   Number: the type of its products, float or double.
//   Size(batch, width): the memory that it takes from an arena.
//   Compute(min_pivot, solved): solved [batch, width] becomes H' times the inverse of the new
//     U. Returns the smallest pivot of the equations. If that is less than min_pivot or NaN, no
//     other function may be called.
//   FirstNotFinite(): the first matrix that would become not finite, or too large to tell; or
//     null.
//   Write(): applies the step. Needs no memory, so it is never left half done.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_FACTORED_OUTPUT_FACTORED_OUTPUT_FORMS_H_
#define LARGEOUT_CUSTOM_OPS_CORE_FACTORED_OUTPUT_FACTORED_OUTPUT_FORMS_H_

#include <cstdint>
#include <vector>

#include "custom_ops/core/factored_output/factored_output.h"
#include "custom_ops/core/factored_output/factored_output_targets.h"
#include "custom_ops/core/linear_algebra/padded_matrix.h"
#include "custom_ops/core/linear_algebra/row_arithmetic.h"

namespace largeout {

// The inputs of a form, all from the state before the step.
template <class Number>
struct FactoredTerms {
  double* mixing;   // U; this and the next two are written by Write
  double* inverse;  // of U
  double* gram;     // Q
  int64_t num_classes;
  const FactoredSlopes& slopes;
  double learning_rate;  // eta
  const ParallelFor& parallel;
  const PaddedMatrixOf<Number>& features;  // H' [batch, width]
  const PaddedMatrix& by_features;         // (W'E)' [batch, width]
  const std::vector<double>& target_sums;  // A'1 [batch]
  const TargetSlopes& targets;             // A

  int64_t batch() const { return features.rows(); }
  int64_t width() const { return features.width(); }
};

// Uses matrices [batch, batch], by Woodbury's identity: the square matrices are updated in
// place by `batch` or twice as many products of vectors.
template <class NumberType>
class SmallBatchForm {
 public:
  using Number = NumberType;

  SmallBatchForm(const FactoredTerms<Number>& terms, Arena* arena);
  static int64_t Size(int64_t batch, int64_t width);

  double Compute(double min_pivot, PaddedMatrixOf<Number>* solved);
  const char* FirstNotFinite() const;
  void Write();

 private:
  using Matrix = PaddedMatrixOf<Number>;

  double Solve(double min_pivot, Matrix* solved);
  void WriteScaledSquares(Matrix* squares);
  void WriteHalfOfGram();

  const FactoredTerms<Number>& terms_;
  Matrix stack_;                    // [3 batch, width]: H', -L' and H' for the update of Q
  Matrix columns_;                  // H
  Matrix of_mixing_;                // [batch, width]: factor of H' in the update of U
  Matrix of_inverse_;               // [batch, width]: factor of T in the update of U^-1
  Matrix scaled_;                   // [batch, width]
  Matrix small_, half_;             // [batch, batch]
  Matrix square_;                   // [width, width]
  const Matrix* solved_ = nullptr;  // T
};

// Uses M = I - 2 eta H Gamma H' itself, [width, width].
class LargeBatchForm {
 public:
  using Number = double;

  LargeBatchForm(const FactoredTerms<double>& terms, Arena* arena);
  static int64_t Size(int64_t batch, int64_t width);

  double Compute(double min_pivot, PaddedMatrix* solved);
  const char* FirstNotFinite() const;
  void Write();

 private:
  void WriteChange();
  double UpdateInverse(double min_pivot, PaddedMatrix* solved);
  void UpdateMixing();
  void UpdateGram();
  void WriteHalfOfGram();
  void WriteProductsOfSums();
  void AddSquaresOfTargets();

  const FactoredTerms<double>& terms_;
  // The new matrices; for Q, the elements [i, j] with j <= i.
  PaddedMatrix mixing_, inverse_, gram_;
  PaddedMatrix scaled_;          // [batch, width]
  PaddedMatrix change_;          // M - I
  PaddedMatrix first_, second_;  // [width, width]
  PaddedMatrix factors_, sums_;  // [2, batch], [2, width]
};

// to = row j of `rows` times factor scales[j].
template <class From, class To>
void ScaleRows(double factor, const double* scales, const From* rows, int64_t stride,
               const ParallelFor& parallel, PaddedMatrixOf<To>* to) {
  ForEachRow(to->rows(), to->width(), parallel, [&](int64_t j) {
    ScaleRow(factor * scales[j], rows + j * stride, to->width(), to->row(j));
  });
}

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_FACTORED_OUTPUT_FACTORED_OUTPUT_FORMS_H_
