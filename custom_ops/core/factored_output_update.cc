#include "custom_ops/core/factored_output_update.h"

#include <algorithm>

#include "custom_ops/core/dense_product.h"
#include "custom_ops/core/finite.h"
#include "custom_ops/core/lu_factors.h"

namespace largeout {
namespace {

bool RowsAreFinite(const PaddedMatrix& matrix) {
  for (int64_t i = 0; i < matrix.rows(); ++i) {
    if (!AllFinite(matrix.row(i), matrix.width())) return false;
  }
  return true;
}

bool LowerRowsAreFinite(const PaddedMatrix& matrix) {
  for (int64_t i = 0; i < matrix.rows(); ++i) {
    if (!AllFinite(matrix.row(i), i + 1)) return false;
  }
  return true;
}

// to [n, n] = the symmetric matrix of which `lower` has the elements [i, j] with j <= i.
void CopySymmetric(const PaddedMatrix& lower, double* to) {
  constexpr int64_t kBlock = 8;  // lines of a cache are read once
  const int64_t size = lower.rows();
  for (int64_t i = 0; i < size; ++i) std::copy_n(lower.row(i), i + 1, to + i * size);
  for (int64_t first = 0; first < size; first += kBlock) {
    for (int64_t j = first + 1; j < size; ++j) {
      const int64_t last = std::min(first + kBlock, j);
      for (int64_t i = first; i < last; ++i) to[i * size + j] = lower.row(j)[i];
    }
  }
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
      stack_(3 * batch.batch, state.width, arena),
      features_(stack_.Rows(0, batch.batch)),
      columns_(state.width, batch.batch, arena),
      scaled_(batch.batch, state.width, arena),
      solved_(batch.batch, state.width, arena),
      small_(batch.batch, batch.batch, arena),
      half_(batch.batch, batch.batch, arena),
      inverse_(state.width, state.width, arena),
      gram_(state.width, state.width, arena),
      sums_(2, state.width, arena),
      factors_(2, batch.batch, arena),
      targets_(batch, slopes.by_a, parallel) {
  features_.CopyFrom(batch.features);
  TransposeInto(batch.features, state.width, batch.batch, state.width, columns_.data(),
                columns_.stride());
}

template <class Number>
int64_t FactoredUpdate<Number>::Size(int64_t batch, int64_t width) {
  return 2 * PaddedMatrix::Size(width, width) + 5 * PaddedMatrix::Size(batch, width) +
         PaddedMatrix::Size(width, batch) + 2 * PaddedMatrix::Size(batch, batch) +
         PaddedMatrix::Size(2, width) + PaddedMatrix::Size(2, batch);
}

template <class Number>
FactoredOutcome FactoredUpdate<Number>::Compute(double min_pivot) {
  const double pivot = UpdateInverse(min_pivot);
  if (!(pivot >= min_pivot)) return {pivot, nullptr};
  UpdateMixing();
  UpdateGram();
  UpdateSums();
  if (!UpdateVectors()) return {pivot, "vectors"};
  return {pivot, FirstNotFinite()};
}

template <class Number>
const char* FactoredUpdate<Number>::FirstNotFinite() const {
  if (!RowsAreFinite(*gradient_.mixing())) return "mixing";
  if (!RowsAreFinite(inverse_)) return "inverse";
  if (!RowsAreFinite(sums_.Rows(0, 1))) return "offset";
  if (!RowsAreFinite(sums_.Rows(1, 1))) return "total";
  return LowerRowsAreFinite(gram_) ? nullptr : "gram";
}

template <class Number>
void FactoredUpdate<Number>::Write() const {
  const int64_t width = state_.width;
  for (int64_t i = 0; i < width; ++i) {
    std::copy_n(gradient_.mixing()->row(i), width, state_.mixing + i * width);
    std::copy_n(inverse_.row(i), width, state_.inverse + i * width);
  }
  CopySymmetric(gram_, state_.gram);
  std::copy_n(sums_.row(0), width, state_.offset);
  std::copy_n(sums_.row(1), width, state_.total);
  for (size_t c = 0; c < targets_.classes().size(); ++c) {
    std::copy_n(vectors_.data() + c * width, width,
                state_.vectors + targets_.classes()[c] * width);
  }
}

// scaled_ = row j of `rows` times factor gamma_j.
template <class Number>
void FactoredUpdate<Number>::Scale(double factor, const double* rows, int64_t stride) {
  for (int64_t j = 0; j < batch_.batch; ++j) {
    const double scale = factor * slopes_.by_q[j];
    const double* from = rows + j * stride;
    double* to = scaled_.row(j);
    for (int64_t k = 0; k < state_.width; ++k) to[k] = scale * from[k];
  }
}

// Woodbury: with S = I - 2 eta H'H Gamma and T = S^-1 H' U^-1, which is H' times the inverse of
// the new U, U^-1 becomes U^-1 + 2 eta H Gamma T. Returns the smallest pivot of S.
template <class Number>
double FactoredUpdate<Number>::UpdateInverse(double min_pivot) {
  small_.Fill(0);
  AddProductInBlocks(features_.view(), columns_, &small_, parallel_);
  for (int64_t i = 0; i < batch_.batch; ++i) {
    double* row = small_.row(i);
    for (int64_t j = 0; j < batch_.batch; ++j) row[j] *= -2 * learning_rate_ * slopes_.by_q[j];
    row[i] += 1;
  }
  LuFactors factors(&small_);
  const double pivot = factors.Factor(min_pivot, parallel_);
  if (!(pivot >= min_pivot)) return pivot;
  inverse_.CopyFrom(state_.inverse);
  solved_.Fill(0);
  AddProductInBlocks(features_.view(), inverse_, &solved_, parallel_);
  factors.Solve(&solved_, parallel_);
  Scale(2 * learning_rate_, features_.data(), features_.stride());
  AddProductInBlocks(scaled_.transposed(), solved_, &inverse_, parallel_);
  return pivot;
}

// U <- U - 2 eta (U H) Gamma H'.
template <class Number>
void FactoredUpdate<Number>::UpdateMixing() {
  Scale(-2 * learning_rate_, slopes_.mixed_features, state_.width);
  AddProductInBlocks(scaled_.transposed(), features_, gradient_.mixing(), parallel_);
}

// squares [batch, batch] = eta^2 / 2 times E'E. With B = W'E - Q H Gamma, E'E is F + F' where
// F = 2 B'H Gamma + (A'1 + N/2 sigma) sigma' + A'A / 2.
template <class Number>
void FactoredUpdate<Number>::WriteScaledSquares(PaddedMatrix* squares) {
  const int64_t size = batch_.batch;
  const double factor = learning_rate_ * learning_rate_ / 2;
  Scale(-1, slopes_.gram_features, state_.width);
  for (int64_t j = 0; j < size; ++j) {
    const double* by_features = gradient_.by_features().row(j);
    double* row = scaled_.row(j);
    for (int64_t k = 0; k < state_.width; ++k) row[k] += by_features[k];
  }
  half_.Fill(0);
  AddProductInBlocks(scaled_.view(), columns_, &half_, parallel_);
  for (int64_t i = 0; i < size; ++i) {
    const double rest = gradient_.target_sums()[i] + 0.5 * state_.num_classes * slopes_.by_s[i];
    double* row = half_.row(i);
    for (int64_t j = 0; j < size; ++j) {
      row[j] = factor * (2 * row[j] * slopes_.by_q[j] + rest * slopes_.by_s[j]);
    }
  }
  TransposeInto(half_.data(), half_.stride(), size, size, squares->data(), squares->stride());
  for (int64_t i = 0; i < size; ++i) {
    for (int64_t j = 0; j < size; ++j) squares->row(i)[j] += half_.row(i)[j];
  }
  targets_.AddGram(factor, squares);
}

// Q <- Q - L H' - H L' with L = eta W'E - eta^2/2 H E'E: one product of twice the depth, as the
// rows of -L' stand between those of H' and those of H' again.
template <class Number>
void FactoredUpdate<Number>::UpdateGram() {
  const int64_t size = batch_.batch;
  WriteScaledSquares(&small_);
  PaddedMatrix negative = stack_.Rows(size, size);
  for (int64_t j = 0; j < size; ++j) {
    const double* by_features = gradient_.by_features().row(j);
    double* row = negative.row(j);
    for (int64_t k = 0; k < state_.width; ++k) row[k] = -learning_rate_ * by_features[k];
    std::copy_n(features_.row(j), state_.width, stack_.row(2 * size + j));
  }
  AddProductInBlocks(small_.view(), features_, &negative, parallel_);
  gram_.CopyFrom(state_.gram);
  AddLowerProduct(stack_.Rows(size, 2 * size).transposed(), stack_.Rows(0, 2 * size), &gram_,
                  parallel_);
}

// omega <- omega - eta H (2 Gamma H' omega + sigma),
// w_bar <- w_bar - eta H (2 Gamma H' w_bar + N sigma + A'1).
template <class Number>
void FactoredUpdate<Number>::UpdateSums() {
  const int64_t size = batch_.batch;
  std::copy_n(state_.offset, state_.width, sums_.row(0));
  std::copy_n(state_.total, state_.width, sums_.row(1));
  factors_.Fill(0);
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
