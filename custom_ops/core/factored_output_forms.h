// The two ways in which a step of a factored output layer makes its square matrices U, U^-1 and
// Q. Their results are the same but for rounding; their multiplications, with those of the
// scores and the gradient, are
//
//   small batch: 7 batch width^2 + 5 batch^2 width + batch^3 / 3,
//   large batch: 6 batch width^2 + 13/3 width^3,
//
// as one works with matrices [batch, batch], the other with some [width, width]. The names in
// formulas are those of factored_output.h.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_FACTORED_OUTPUT_FORMS_H_
#define LARGEOUT_CUSTOM_OPS_CORE_FACTORED_OUTPUT_FORMS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "custom_ops/core/factored_output.h"
#include "custom_ops/core/factored_output_targets.h"
#include "custom_ops/core/padded_matrix.h"

namespace largeout {

// What a form reads; all of it is of the state before the step.
struct FactoredTerms {
  const double* mixing;   // U
  const double* inverse;  // of U
  const double* gram;     // Q
  int64_t num_classes;
  const FactoredSlopes& slopes;
  double learning_rate;  // eta
  const ParallelFor& parallel;
  const PaddedMatrix& features;            // H' [batch, width]
  const PaddedMatrix& columns;             // H [width, batch]
  const PaddedMatrix& by_features;         // (W'E)' [batch, width]
  const std::vector<double>& target_sums;  // A'1 [batch]
  const TargetSlopes& targets;             // A

  int64_t batch() const { return features.rows(); }
  int64_t width() const { return features.width(); }
};

// Its functions are called in their order.
class FactoredForm {
 public:
  virtual ~FactoredForm() = default;

  // inverse becomes that of the new U, solved [batch, width] H' times it. Returns the smallest
  // pivot of the equations that are solved; where that is less than min_pivot or NaN, nothing
  // else is to be called.
  virtual double UpdateInverse(double min_pivot, PaddedMatrix* inverse,
                               PaddedMatrix* solved) = 0;

  // mixing, a copy of U, becomes the new U.
  virtual void UpdateMixing(PaddedMatrix* mixing) = 0;

  // The elements [i, j] of gram with j <= i become those of the new Q.
  virtual void UpdateGram(PaddedMatrix* gram) = 0;
};

// With matrices [batch, batch], by Woodbury's identity.
class SmallBatchForm final : public FactoredForm {
 public:
  SmallBatchForm(const FactoredTerms& terms, Arena* arena);
  static int64_t Size(int64_t batch, int64_t width);

  double UpdateInverse(double min_pivot, PaddedMatrix* inverse, PaddedMatrix* solved) override;
  void UpdateMixing(PaddedMatrix* mixing) override;
  void UpdateGram(PaddedMatrix* gram) override;

 private:
  void WriteScaledSquares(PaddedMatrix* squares);

  const FactoredTerms& terms_;
  PaddedMatrix stack_;         // [3 batch, width]: what UpdateGram needs
  PaddedMatrix scaled_;        // [batch, width]
  PaddedMatrix small_, half_;  // [batch, batch]
};

// With M = I - 2 eta H Gamma H' itself, [width, width].
class LargeBatchForm final : public FactoredForm {
 public:
  LargeBatchForm(const FactoredTerms& terms, Arena* arena);
  static int64_t Size(int64_t batch, int64_t width);

  double UpdateInverse(double min_pivot, PaddedMatrix* inverse, PaddedMatrix* solved) override;
  void UpdateMixing(PaddedMatrix* mixing) override;
  void UpdateGram(PaddedMatrix* gram) override;

 private:
  void WriteChange();
  void WriteHalfOfGram();
  void WriteProductsOfSums();
  void AddSquaresOfTargets(PaddedMatrix* gram);

  const FactoredTerms& terms_;
  PaddedMatrix scaled_;          // [batch, width]
  PaddedMatrix change_;          // M - I
  PaddedMatrix first_, second_;  // [width, width]
  PaddedMatrix factors_, sums_;  // [2, batch], [2, width]
};

// to = row j of `rows` times factor scales[j].
void ScaleRows(double factor, const double* scales, const double* rows, int64_t stride,
               const ParallelFor& parallel, PaddedMatrix* to);

// The one with fewer multiplications, nearly, and what it takes of an arena. `terms` must live
// as long as it.
std::unique_ptr<FactoredForm> MakeFactoredForm(const FactoredTerms& terms, Arena* arena);
int64_t SizeOfFactoredForm(int64_t batch, int64_t width);

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_FACTORED_OUTPUT_FORMS_H_
