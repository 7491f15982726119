// The output layer of Vincent, de Brebisson and Bouthillier 2015, "Exact gradient updates in
// time independent of output size for the spherical loss family". Its weights W [num_classes,
// width] are represented as V U + 1 omega', never formed, together with Q = W'W and w_bar =
// W'1. A step of gradient descent on all of W costs O(batch width^2).
//
// Of the logits o_j = W h_j of an example, a loss of the family needs only q_j = |o_j|^2, their
// sum s_j and those of its few targets, a_j. Its slopes by these are gamma_j, sigma_j and the
// sparse column A_j. So the slopes by all logits are E = 2 W H Gamma + 1 sigma' + A (equation
// 19).
//
// All state but V is double, and all updates are sums of doubles. If V is float, the products
// of a batch of up to `width` examples are float too, except for those of Q H. The change of a
// step is then accurate to about the last place of a float. Products use doubles if they might
// overflow a float, or if a pivot is small. The results do not depend on the number of threads.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_FACTORED_OUTPUT_FACTORED_OUTPUT_H_
#define LARGEOUT_CUSTOM_OPS_CORE_FACTORED_OUTPUT_FACTORED_OUTPUT_H_

#include <algorithm>
#include <cstdint>

#include "custom_ops/core/base/parallel.h"
#include "custom_ops/core/factored_output/factored_output_folds.h"
#include "custom_ops/core/linear_algebra/row_arithmetic.h"

namespace largeout {

// Number: float or double.
template <class Number>
struct FactoredState {
  Number* vectors;  // V [num_classes, width]
  double* mixing;   // U [width, width]
  double* inverse;  // of U, [width, width]
  double* offset;   // omega [width]
  double* total;    // w_bar [width]
  double* gram;     // Q [width, width], symmetric
  int64_t num_classes;
  int64_t width;
  FactoredFolds folds;  // the folds that rows of V may still lack
  uint32_t* seen;       // [num_classes]: the number of folds that a row has taken
};

// row [width] = row `id` of V, after all folds.
template <class Number>
void CopyRow(const FactoredState<Number>& state, int64_t id, double* row) {
  ConvertRow(state.vectors + id * state.width, state.width, row);
  TakeFolds(state.folds, state.seen[id], row);
}

// Prefetches rows of V: if `place` is the first of [first, last), or many places after it, the
// rows of ids [place, last), up to that many; -1 is padding. Always inline, because the
// compiler removes calls of a function that only prefetches.
template <class Number>
inline __attribute__((always_inline)) void PrefetchRows(const FactoredState<Number>& state,
                                                        const int64_t* ids, int64_t first,
                                                        int64_t place, int64_t last) {
  constexpr int64_t kRowsAtOnce = 128, kLineNumbers = 64 / sizeof(Number);
  if ((place - first) % kRowsAtOnce != 0) return;
  for (int64_t i = place; i < std::min(place + kRowsAtOnce, last); ++i) {
    if (ids[i] < 0) continue;
    __builtin_prefetch(state.seen + ids[i]);
    const Number* row = state.vectors + ids[i] * state.width;
    for (int64_t k = 0; k < state.width; k += kLineNumbers) __builtin_prefetch(row + k);
    // One more line, if the row starts within a line.
    __builtin_prefetch(row + state.width - 1);
  }
}

// Some examples and their targets.
struct FactoredBatch {
  const double* features;  // [batch, width], with a 1 at the end if there is a bias
  const int64_t* ids;      // [batch, num_targets] in [-1, num_classes); -1 is padding
  int64_t batch;
  int64_t num_targets;
};

// The inputs of a loss, and two products that a step needs again.
struct FactoredScores {
  double* q;               // [batch]
  double* s;               // [batch]
  double* a;               // [batch, num_targets], 0 at padding
  double* gram_features;   // [batch, width]: Q h of each example
  double* mixed_features;  // [batch, width]: U h of each example
};

// The slopes of a loss, and the products that belong to its scores.
struct FactoredSlopes {
  const double* by_q;  // gamma [batch]
  const double* by_s;  // sigma [batch]
  // [batch, num_targets]; slopes of a class that an example repeats are added.
  const double* by_a;
  const double* gram_features;
  const double* mixed_features;
};

// The result of a step. A refused step writes nothing.
struct FactoredOutcome {
  // The smallest absolute value of a pivot of I - 2 learning_rate H'H Gamma. For a batch of
  // more than `width` examples, of I - 2 learning_rate H Gamma H', which has the same
  // determinant. The step is refused if it is less than min_pivot, or NaN.
  double smallest_pivot;
  // The first new value that is not finite, for which the step is refused; or null.
  const char* not_finite;
};

// O(batch width^2 + batch num_targets width).
template <class Number>
void ScoreFactoredOutput(const FactoredState<Number>& state, const FactoredBatch& batch,
                         const ParallelFor& parallel, const FactoredScores& scores);

// by_features [batch, dim]: the first `dim` numbers of the gradient by the features of each
// example, which is W'E.
template <class Number>
void GradientByFactoredFeatures(const FactoredState<Number>& state, const FactoredBatch& batch,
                                const FactoredSlopes& slopes, const ParallelFor& parallel,
                                int64_t dim, double* by_features);

// The same gradient, for the state before the step; then W <- W - learning_rate E H', or
// nothing if the step is refused. O(batch width^2 + batch^2 width + batch num_targets width).
template <class Number>
FactoredOutcome StepFactoredOutput(const FactoredState<Number>& state,
                                   const FactoredBatch& batch, const FactoredSlopes& slopes,
                                   double learning_rate, double min_pivot,
                                   const ParallelFor& parallel, int64_t dim,
                                   double* by_features);

// Applies all folds to all rows of V and clears the log; W does not change. Needs no memory.
template <class Number>
void TakeAllFolds(const FactoredState<Number>& state, const ParallelFor& parallel);

// Applies all folds to a copy of V.
template <class Number>
void TakeAllFolds(const FactoredFolds& folds, const uint32_t* seen, int64_t num_classes,
                  const ParallelFor& parallel, Number* vectors);

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_FACTORED_OUTPUT_FACTORED_OUTPUT_H_
