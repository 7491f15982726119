#include <algorithm>
#include <type_traits>
#include <vector>

#include "custom_ops/core/factored_output/factored_output.h"
#include "custom_ops/core/factored_output/factored_output_products.h"
#include "custom_ops/core/factored_output/factored_output_update.h"

namespace largeout {
namespace {

// A small pivot increases the relative errors of the products of a step. If a pivot is smaller
// than this, the step is computed in double.
constexpr double kLeastPivotOfFloats = 0.01;

template <class T>
struct TypeOf {
  using Type = T;
};

}  // namespace

template <class Number>
int64_t FactoredGradient<Number>::Size(int64_t batch, int64_t width) {
  return 2 * PaddedMatrix::Size(batch, width);
}

// W'E = 2 Q H Gamma + w_bar sigma' + omega (A'1)' + U'V'A; equations 31 to 33.
template <class Number>
FactoredGradient<Number>::FactoredGradient(const FactoredState<Number>& state,
                                           const FactoredBatch& batch,
                                           const FactoredSlopes& slopes,
                                           const ParallelFor& parallel, Arena* arena)
    : by_features_(batch.batch, state.width, arena), target_sums_(batch.batch) {
  PaddedMatrix targets(batch.batch, state.width, arena);
  MultiplyTargets(state, batch, slopes.by_a, parallel, target_sums_.data(), &targets);
  ForEachRow(batch.batch, 2 * state.width, parallel, [&](int64_t j) {
    const double twice = 2 * slopes.by_q[j], by_s = slopes.by_s[j], sum = target_sums_[j];
    const double* gram = slopes.gram_features + j * state.width;
    double* row = by_features_.row(j);
    for (int64_t k = 0; k < state.width; ++k) {
      row[k] = twice * gram[k] + by_s * state.total[k] + sum * state.offset[k];
    }
  });
  const DenseRows rows = {targets.data(), batch.batch, state.width, targets.stride()};
  AddTimesSquare<Number>(rows, state.mixing, Square::kAsItIs, parallel, by_features_.data(),
                         by_features_.stride());
}

template <class Number>
void FactoredGradient<Number>::Write(int64_t dim, double* by_features) const {
  for (int64_t j = 0; j < by_features_.rows(); ++j) {
    std::copy_n(by_features_.row(j), dim, by_features + j * dim);
  }
}

template class FactoredGradient<float>;
template class FactoredGradient<double>;

template <class Number>
void GradientByFactoredFeatures(const FactoredState<Number>& state, const FactoredBatch& batch,
                                const FactoredSlopes& slopes, const ParallelFor& parallel,
                                int64_t dim, double* by_features) {
  Arena arena(FactoredGradient<Number>::Size(batch.batch, state.width));
  FactoredGradient<Number>(state, batch, slopes, parallel, &arena).Write(dim, by_features);
}

// A step with either Form; written unless it is refused.
template <class Form, class Number>
FactoredOutcome StepByForm(const FactoredState<Number>& state, const FactoredBatch& batch,
                           const FactoredSlopes& slopes, double learning_rate, double min_pivot,
                           const ParallelFor& parallel,
                           const FactoredGradient<Number>& gradient) {
  Arena arena(FactoredUpdate<Number, Form>::Size(batch.batch, state.width));
  FactoredUpdate<Number, Form> update(state, batch, slopes, learning_rate, parallel, gradient,
                                      &arena);
  const FactoredOutcome outcome = update.Compute(min_pivot);
  if (outcome.smallest_pivot >= min_pivot && outcome.not_finite == nullptr) update.Write();
  return outcome;
}

template <class Number>
FactoredOutcome StepFactoredOutput(const FactoredState<Number>& state,
                                   const FactoredBatch& batch, const FactoredSlopes& slopes,
                                   double learning_rate, double min_pivot,
                                   const ParallelFor& parallel, int64_t dim,
                                   double* by_features) {
  Arena arena(FactoredGradient<Number>::Size(batch.batch, state.width));
  const FactoredGradient<Number> gradient(state, batch, slopes, parallel, &arena);
  gradient.Write(dim, by_features);
  FactoredSlopes known = slopes;
  const auto step = [&](auto form, double least_pivot) {
    using Form = typename decltype(form)::Type;
    return StepByForm<Form>(state, batch, known, learning_rate, least_pivot, parallel,
                            gradient);
  };
  if (batch.batch > state.width) return step(TypeOf<LargeBatchForm>{}, min_pivot);
  std::vector<double> mixed_features;
  if constexpr (std::is_same_v<Number, float>) {
    const double least_pivot = std::max(min_pivot, kLeastPivotOfFloats);
    const FactoredOutcome outcome = step(TypeOf<SmallBatchForm<float>>{}, least_pivot);
    const bool is_singular = !(outcome.smallest_pivot >= least_pivot);
    if (!is_singular && outcome.not_finite == nullptr) return outcome;
    if (is_singular) {  // the products of the scores are floats
      mixed_features.resize(batch.batch * state.width);
      AddTimesSquare<double>({batch.features, batch.batch, state.width, state.width},
                             state.mixing, Square::kTransposed, parallel, mixed_features.data(),
                             state.width);
      known.mixed_features = mixed_features.data();
    }
  }
  return step(TypeOf<SmallBatchForm<double>>{}, min_pivot);
}

#define LARGEOUT_INSTANTIATE(Number)                                                           \
  template void GradientByFactoredFeatures(const FactoredState<Number>&, const FactoredBatch&, \
                                           const FactoredSlopes&, const ParallelFor&, int64_t, \
                                           double*);                                           \
  template FactoredOutcome StepFactoredOutput(                                                 \
      const FactoredState<Number>&, const FactoredBatch&, const FactoredSlopes&, double,       \
      double, const ParallelFor&, int64_t, double*);
LARGEOUT_INSTANTIATE(float)
LARGEOUT_INSTANTIATE(double)
#undef LARGEOUT_INSTANTIATE

}  // namespace largeout
