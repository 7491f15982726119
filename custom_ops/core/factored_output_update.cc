#include "custom_ops/core/factored_output_update.h"

#include <algorithm>
#include <atomic>

#include "custom_ops/core/dense_product.h"
#include "custom_ops/core/finite.h"

namespace largeout {
namespace {

// Whether the first width_of(i) numbers of each row i are finite.
template <class WidthOf>
bool RowsAreFinite(const PaddedMatrix& matrix, const ParallelFor& parallel,
                   const WidthOf& width_of) {
  std::atomic<bool> finite{true};
  ForEachRow(matrix.rows(), matrix.width() / 4, parallel, [&](int64_t i) {
    if (!AllFinite(matrix.row(i), width_of(i))) finite = false;
  });
  return finite;
}

bool AllFinite(const PaddedMatrix& matrix, const ParallelFor& parallel) {
  return RowsAreFinite(matrix, parallel, [&](int64_t /*row*/) { return matrix.width(); });
}

bool LowerIsFinite(const PaddedMatrix& matrix, const ParallelFor& parallel) {
  return RowsAreFinite(matrix, parallel, [](int64_t row) { return row + 1; });
}

// to [n, n] = the symmetric matrix of which `lower` has the elements [i, j] with j <= i.
void CopySymmetric(const PaddedMatrix& lower, const ParallelFor& parallel, double* to) {
  const int64_t size = lower.rows();
  ForEachRow(size, size / 4, parallel,
             [&](int64_t i) { std::copy_n(lower.row(i), i + 1, to + i * size); });
  MirrorLower(size, to, size, parallel);
}

}  // namespace

template <class Number>
FactoredUpdate<Number>::FactoredUpdate(const FactoredState<Number>& state,
                                       const FactoredBatch& batch, const FactoredSlopes& slopes,
                                       double learning_rate, const ParallelFor& parallel,
                                       FactoredGradient<Number>* gradient, Arena* arena)
    : state_(state),
      batch_(batch),
      slopes_(slopes),
      learning_rate_(learning_rate),
      parallel_(parallel),
      gradient_(*gradient),
      features_(batch.batch, state.width, arena),
      columns_(state.width, batch.batch, arena),
      solved_(batch.batch, state.width, arena),
      inverse_(state.width, state.width, arena),
      gram_(state.width, state.width, arena),
      sums_(2, state.width, arena),
      factors_(2, batch.batch, arena),
      targets_(batch, slopes.by_a, parallel),
      terms_{state.mixing,
             state.inverse,
             state.gram,
             state.num_classes,
             slopes,
             learning_rate,
             parallel,
             features_,
             columns_,
             gradient->by_features(),
             gradient->target_sums(),
             targets_},
      form_(MakeFactoredForm(terms_, arena)) {
  features_.CopyFrom(batch.features, parallel);
  TransposeInto(batch.features, state.width, batch.batch, state.width, columns_.data(),
                columns_.stride(), parallel);
}

template <class Number>
int64_t FactoredUpdate<Number>::Size(int64_t batch, int64_t width) {
  return 2 * PaddedMatrix::Size(width, width) + 2 * PaddedMatrix::Size(batch, width) +
         PaddedMatrix::Size(width, batch) + PaddedMatrix::Size(2, width) +
         PaddedMatrix::Size(2, batch) + SizeOfFactoredForm(batch, width);
}

template <class Number>
FactoredOutcome FactoredUpdate<Number>::Compute(double min_pivot) {
  const double pivot = form_->UpdateInverse(min_pivot, &inverse_, &solved_);
  if (!(pivot >= min_pivot)) return {pivot, nullptr};
  form_->UpdateMixing(gradient_.mixing());
  form_->UpdateGram(&gram_);
  UpdateSums();
  if (!UpdateVectors()) return {pivot, "vectors"};
  return {pivot, FirstNotFinite()};
}

template <class Number>
const char* FactoredUpdate<Number>::FirstNotFinite() const {
  if (!AllFinite(*gradient_.mixing(), parallel_)) return "mixing";
  if (!AllFinite(inverse_, parallel_)) return "inverse";
  if (!AllFinite(sums_.row(0), sums_.width())) return "offset";
  if (!AllFinite(sums_.row(1), sums_.width())) return "total";
  return LowerIsFinite(gram_, parallel_) ? nullptr : "gram";
}

template <class Number>
void FactoredUpdate<Number>::Write() const {
  const int64_t width = state_.width;
  ForEachRow(width, width, parallel_, [&](int64_t i) {
    std::copy_n(gradient_.mixing()->row(i), width, state_.mixing + i * width);
    std::copy_n(inverse_.row(i), width, state_.inverse + i * width);
  });
  CopySymmetric(gram_, parallel_, state_.gram);
  std::copy_n(sums_.row(0), width, state_.offset);
  std::copy_n(sums_.row(1), width, state_.total);
  for (size_t c = 0; c < targets_.classes().size(); ++c) {
    std::copy_n(vectors_.data() + c * width, width,
                state_.vectors + targets_.classes()[c] * width);
  }
}

// omega <- omega - eta H (2 Gamma H' omega + sigma),
// w_bar <- w_bar - eta H (2 Gamma H' w_bar + N sigma + A'1).
template <class Number>
void FactoredUpdate<Number>::UpdateSums() {
  const int64_t size = batch_.batch;
  std::copy_n(state_.offset, state_.width, sums_.row(0));
  std::copy_n(state_.total, state_.width, sums_.row(1));
  factors_.Fill(0, parallel_);
  AddProductInBlocks(sums_.view(), columns_, &factors_, parallel_);
  for (int64_t j = 0; j < size; ++j) {
    const double twice = 2 * slopes_.by_q[j], by_s = slopes_.by_s[j];
    const double of_total = state_.num_classes * by_s + gradient_.target_sums()[j];
    double &offset = factors_.row(0)[j], &total = factors_.row(1)[j];
    offset = -learning_rate_ * (twice * offset + by_s);
    total = -learning_rate_ * (twice * total + of_total);
  }
  AddProductInBlocks(factors_.view(), features_, &sums_, parallel_);
}

// V[c] <- V[c] - eta times the sum over j of A_cj T_j. Returns whether all are finite.
template <class Number>
bool FactoredUpdate<Number>::UpdateVectors() {
  const int64_t width = state_.width;
  const int64_t num_classes = static_cast<int64_t>(targets_.classes().size());
  vectors_.resize(num_classes * width);
  parallel_(num_classes, 4 * width, [&](int64_t begin, int64_t end) {
    std::vector<double> sum(width);
    for (int64_t c = begin; c < end; ++c) {
      std::copy_n(state_.vectors + targets_.classes()[c] * width, width, sum.data());
      targets_.AddRowsOfClass(c, -learning_rate_, solved_, sum.data());
      std::copy_n(sum.data(), width, vectors_.data() + c * width);
    }
  });
  return AllFinite(vectors_.data(), num_classes * width);
}

template class FactoredUpdate<float>;
template class FactoredUpdate<double>;

}  // namespace largeout
