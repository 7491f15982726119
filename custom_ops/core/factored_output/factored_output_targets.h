// The slopes of a batch by the logits of its targets: the sparse matrix A [num_classes, batch].

#ifndef LARGEOUT_CUSTOM_OPS_CORE_FACTORED_OUTPUT_FACTORED_OUTPUT_TARGETS_H_
#define LARGEOUT_CUSTOM_OPS_CORE_FACTORED_OUTPUT_FACTORED_OUTPUT_TARGETS_H_

#include <cstdint>
#include <vector>

#include "custom_ops/core/factored_output/factored_output.h"
#include "custom_ops/core/linear_algebra/padded_matrix.h"

namespace largeout {

// The rows of A: the distinct classes, each with the examples that have it as a target.
class TargetSlopes {
 public:
  // by_a: [batch, num_targets]; values at padding are ignored.
  TargetSlopes(const FactoredBatch& batch, const double* by_a, const ParallelFor& parallel);

  const std::vector<int64_t>& classes() const { return classes_; }

  // matrix [batch, batch] += factor A'A.
  template <class Number>
  void AddGram(double factor, PaddedMatrixOf<Number>* matrix) const;

  // to [batch, width] += factor A'A matrix.
  void AddGramTimes(double factor, const PaddedMatrix& matrix, PaddedMatrix* to) const;

  // to [width] += factor times the sum over examples j of A_cj row j of the matrix, for class c
  // = classes()[place].
  template <class Number>
  void AddRowsOfClass(int64_t place, double factor, const PaddedMatrixOf<Number>& matrix,
                      double* to) const;

 private:
  struct Slope {
    int64_t example;
    double value;
  };

  std::vector<int64_t> classes_;  // ascending
  std::vector<int64_t> begin_;    // classes_.size() + 1: where the slopes of a class start
  std::vector<Slope> slopes_;     // per class, examples are ascending and distinct
};

// row_sums [batch] = A'1, products [batch, width] = A'V.
template <class Number>
void MultiplyTargets(const FactoredState<Number>& state, const FactoredBatch& batch,
                     const double* by_a, const ParallelFor& parallel, double* row_sums,
                     PaddedMatrix* products);

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_FACTORED_OUTPUT_FACTORED_OUTPUT_TARGETS_H_
