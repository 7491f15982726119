#include "custom_ops/core/factored_output/factored_output_update.h"

#include <algorithm>

#include "custom_ops/core/base/finite.h"
#include "custom_ops/core/linear_algebra/row_arithmetic.h"

namespace largeout {

template <class Number, class Form>
FactoredUpdate<Number, Form>::FactoredUpdate(const FactoredState<Number>& state,
                                             const FactoredBatch& batch,
                                             const FactoredSlopes& slopes, double learning_rate,
                                             const ParallelFor& parallel,
                                             const FactoredGradient<Number>& gradient,
                                             Arena* arena)
    : state_(state),
      batch_(batch),
      slopes_(slopes),
      learning_rate_(learning_rate),
      parallel_(parallel),
      gradient_(gradient),
      features_(batch.batch, state.width, arena),
      solved_(batch.batch, state.width, arena),
      targets_(batch, slopes.by_a, parallel),
      terms_{state.mixing,
             state.inverse,
             state.gram,
             state.num_classes,
             slopes,
             learning_rate,
             parallel,
             features_,
             gradient.by_features(),
             gradient.target_sums(),
             targets_},
      form_(terms_, arena) {
  features_.CopyFrom(batch.features, parallel);
}

template <class Number, class Form>
int64_t FactoredUpdate<Number, Form>::Size(int64_t batch, int64_t width) {
  return 2 * Matrix::Size(batch, width) + Form::Size(batch, width);
}

template <class Number, class Form>
FactoredOutcome FactoredUpdate<Number, Form>::Compute(double min_pivot) {
  const double pivot = form_.Compute(min_pivot, &solved_);
  if (!(pivot >= min_pivot)) return {pivot, nullptr};
  UpdateSums();
  if (!UpdateVectors()) return {pivot, "vectors"};
  return {pivot, FirstNotFinite()};
}

template <class Number, class Form>
const char* FactoredUpdate<Number, Form>::FirstNotFinite() const {
  if (!AllFinite(offset_.data(), state_.width)) return "offset";
  if (!AllFinite(total_.data(), state_.width)) return "total";
  return form_.FirstNotFinite();
}

template <class Number, class Form>
void FactoredUpdate<Number, Form>::Write() {
  const int64_t width = state_.width;
  form_.Write();
  std::copy_n(offset_.data(), width, state_.offset);
  std::copy_n(total_.data(), width, state_.total);
  const auto seen = static_cast<uint32_t>(state_.folds.count());
  for (size_t c = 0; c < targets_.classes().size(); ++c) {
    const int64_t id = targets_.classes()[c];
    std::copy_n(vectors_.data() + c * width, width, state_.vectors + id * width);
    state_.seen[id] = seen;
  }
}

// omega <- omega - eta H (2 Gamma H' omega + sigma),
// w_bar <- w_bar - eta H (2 Gamma H' w_bar + N sigma + A'1).
template <class Number, class Form>
void FactoredUpdate<Number, Form>::UpdateSums() {
  const int64_t width = state_.width;
  offset_.assign(state_.offset, state_.offset + width);
  total_.assign(state_.total, state_.total + width);
  for (int64_t j = 0; j < batch_.batch; ++j) {
    const double* features = batch_.features + j * width;
    const double twice = 2 * slopes_.by_q[j], by_s = slopes_.by_s[j];
    const double of_total = state_.num_classes * by_s + gradient_.target_sums()[j];
    const double offset =
        -learning_rate_ * (twice * Dot(features, state_.offset, width) + by_s);
    const double total =
        -learning_rate_ * (twice * Dot(features, state_.total, width) + of_total);
    AddScaledRow(offset, features, width, offset_.data());
    AddScaledRow(total, features, width, total_.data());
  }
}

// V[c] <- V[c] - eta times the sum over j of A_cj T_j. Returns whether all are finite.
template <class Number, class Form>
bool FactoredUpdate<Number, Form>::UpdateVectors() {
  const int64_t width = state_.width;
  const int64_t num_classes = static_cast<int64_t>(targets_.classes().size());
  vectors_.resize(num_classes * width);
  const int64_t* const ids = targets_.classes().data();
  parallel_(num_classes, 4 * width, [&](int64_t begin, int64_t end) {
    std::vector<double> sum(width);
    for (int64_t c = begin; c < end; ++c) {
      PrefetchRows(state_, ids, begin, c, end);
      CopyRow(state_, ids[c], sum.data());
      targets_.AddRowsOfClass(c, -learning_rate_, solved_, sum.data());
      ConvertRow(sum.data(), width, vectors_.data() + c * width);
    }
  });
  return AllFinite(vectors_.data(), num_classes * width);
}

template class FactoredUpdate<float, SmallBatchForm<float>>;
template class FactoredUpdate<float, SmallBatchForm<double>>;
template class FactoredUpdate<double, SmallBatchForm<double>>;
template class FactoredUpdate<float, LargeBatchForm>;
template class FactoredUpdate<double, LargeBatchForm>;

}  // namespace largeout
