// The computations of a step of a factored output layer, in their order. The names in formulas
// are those of factored_output.h.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_FACTORED_OUTPUT_FACTORED_OUTPUT_UPDATE_H_
#define LARGEOUT_CUSTOM_OPS_CORE_FACTORED_OUTPUT_FACTORED_OUTPUT_UPDATE_H_

#include <cstdint>
#include <vector>

#include "custom_ops/core/factored_output/factored_output.h"
#include "custom_ops/core/factored_output/factored_output_forms.h"
#include "custom_ops/core/factored_output/factored_output_targets.h"
#include "custom_ops/core/linear_algebra/padded_matrix.h"

namespace largeout {

// The gradient by the features.
template <class Number>
class FactoredGradient {
 public:
  FactoredGradient(const FactoredState<Number>& state, const FactoredBatch& batch,
                   const FactoredSlopes& slopes, const ParallelFor& parallel, Arena* arena);

  // The memory that the gradient takes from an arena.
  static int64_t Size(int64_t batch, int64_t width);

  // Copies the first `dim` numbers of each row.
  void Write(int64_t dim, double* by_features) const;

  const PaddedMatrix& by_features() const { return by_features_; }         // (W'E)'
  const std::vector<double>& target_sums() const { return target_sums_; }  // A'1

 private:
  PaddedMatrix by_features_;
  std::vector<double> target_sums_;
};

// A step. It is computed in separate memory until all of it is known to be finite. Form: see
// factored_output_forms.h.
template <class Number, class Form>
class FactoredUpdate {
 public:
  // gradient: of the same state and batch.
  FactoredUpdate(const FactoredState<Number>& state, const FactoredBatch& batch,
                 const FactoredSlopes& slopes, double learning_rate,
                 const ParallelFor& parallel, const FactoredGradient<Number>& gradient,
                 Arena* arena);

  FactoredUpdate(const FactoredUpdate&) = delete;
  FactoredUpdate& operator=(const FactoredUpdate&) = delete;

  static int64_t Size(int64_t batch, int64_t width);

  FactoredOutcome Compute(double min_pivot);

  // Replaces the state by the new one. Needs no memory, so it is never left half done.
  void Write();

 private:
  using Matrix = PaddedMatrixOf<typename Form::Number>;

  void UpdateSums();
  bool UpdateVectors();
  const char* FirstNotFinite() const;

  const FactoredState<Number>& state_;
  const FactoredBatch& batch_;
  const FactoredSlopes& slopes_;
  const double learning_rate_;
  const ParallelFor& parallel_;
  const FactoredGradient<Number>& gradient_;
  Matrix features_;                     // H' [batch, width]
  Matrix solved_;                       // T [batch, width]: H' times the inverse of the new U
  std::vector<double> offset_, total_;  // omega and w_bar
  TargetSlopes targets_;
  const FactoredTerms<typename Form::Number> terms_;  // products of the members above
  Form form_;
  std::vector<Number> vectors_;  // the new rows of V, for the distinct classes
};

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_FACTORED_OUTPUT_FACTORED_OUTPUT_UPDATE_H_
