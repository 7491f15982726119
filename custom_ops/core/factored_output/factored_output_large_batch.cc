#include <algorithm>
#include <atomic>

#include "custom_ops/core/base/finite.h"
#include "custom_ops/core/factored_output/factored_output_forms.h"
#include "custom_ops/core/linear_algebra/dense_product.h"
#include "custom_ops/core/linear_algebra/lu_factors.h"

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

}  // namespace

LargeBatchForm::LargeBatchForm(const FactoredTerms<double>& terms, Arena* arena)
    : terms_(terms),
      mixing_(terms.width(), terms.width(), arena),
      inverse_(terms.width(), terms.width(), arena),
      gram_(terms.width(), terms.width(), arena),
      scaled_(terms.batch(), terms.width(), arena),
      change_(terms.width(), terms.width(), arena),
      first_(terms.width(), terms.width(), arena),
      second_(terms.width(), terms.width(), arena),
      factors_(2, terms.batch(), arena),
      sums_(2, terms.width(), arena) {}

int64_t LargeBatchForm::Size(int64_t batch, int64_t width) {
  return PaddedMatrix::Size(batch, width) + 6 * PaddedMatrix::Size(width, width) +
         PaddedMatrix::Size(2, batch) + PaddedMatrix::Size(2, width);
}

double LargeBatchForm::Compute(double min_pivot, PaddedMatrix* solved) {
  const double pivot = UpdateInverse(min_pivot, solved);
  if (!(pivot >= min_pivot)) return pivot;
  UpdateMixing();
  UpdateGram();
  return pivot;
}

// change_ = M - I = -2 eta H Gamma H'.
void LargeBatchForm::WriteChange() {
  const PaddedMatrix& features = terms_.features;
  ScaleRows(-2 * terms_.learning_rate, terms_.slopes.by_q, features.data(), features.stride(),
            terms_.parallel, &scaled_);
  change_.Fill(0, terms_.parallel);
  AddLowerProduct(scaled_.transposed(), features, &change_, terms_.parallel);
  MirrorLower(change_.rows(), change_.data(), change_.stride(), terms_.parallel);
}

// M^-1 U^-1. M has the same determinant as the matrix of a small batch.
double LargeBatchForm::UpdateInverse(double min_pivot, PaddedMatrix* solved) {
  WriteChange();
  PaddedMatrix& matrix = first_;
  ForEachRow(matrix.rows(), matrix.width(), terms_.parallel, [&](int64_t i) {
    std::copy_n(change_.row(i), matrix.width(), matrix.row(i));
    matrix.row(i)[i] += 1;
  });
  LuFactors<double> factors(&matrix);
  const double pivot = factors.Factor(min_pivot, terms_.parallel);
  if (!(pivot >= min_pivot)) return pivot;
  inverse_.CopyFrom(terms_.inverse, terms_.parallel);
  factors.Solve(&inverse_, terms_.parallel);
  solved->Fill(0, terms_.parallel);
  AddProductInBlocks(terms_.features.view(), inverse_, solved, terms_.parallel);
  return pivot;
}

// U <- U M.
void LargeBatchForm::UpdateMixing() {
  mixing_.CopyFrom(terms_.mixing, terms_.parallel);
  AddProductInBlocks<double>({terms_.mixing, terms_.width(), 1}, change_, &mixing_,
                             terms_.parallel);
}

// gram_ += eta^2 H A'A H'.
void LargeBatchForm::AddSquaresOfTargets() {
  scaled_.Fill(0, terms_.parallel);
  terms_.targets.AddGramTimes(terms_.learning_rate * terms_.learning_rate, terms_.features,
                              &scaled_);
  AddLowerProduct(scaled_.transposed(), terms_.features, &gram_, terms_.parallel);
}

// sums_ = the rows eta H (A'1 + N/2 sigma) and eta H sigma.
void LargeBatchForm::WriteProductsOfSums() {
  for (int64_t j = 0; j < terms_.batch(); ++j) {
    const double by_s = terms_.slopes.by_s[j];
    const double rest = terms_.target_sums[j] + 0.5 * terms_.num_classes * by_s;
    factors_.row(0)[j] = terms_.learning_rate * rest;
    factors_.row(1)[j] = terms_.learning_rate * by_s;
  }
  sums_.Fill(0, terms_.parallel);
  AddProductInBlocks(factors_.view(), terms_.features, &sums_, terms_.parallel);
}

// first_ = 2 eta X - 4 eta^2 (X - Q K)' K, in the names of UpdateGram.
void LargeBatchForm::WriteHalfOfGram() {
  first_.Fill(0, terms_.parallel);
  AddProductInBlocks(terms_.by_features.transposed(), terms_.features, &first_,
                     terms_.parallel);
  ForEachRow(first_.rows(), 2 * first_.width(), terms_.parallel, [&](int64_t i) {
    double* row = first_.row(i);
    for (int64_t j = 0; j < first_.width(); ++j) row[j] *= 2 * terms_.learning_rate;
    std::copy_n(row, first_.width(), second_.row(i));
  });
  AddProductInBlocks<double>({terms_.gram, terms_.width(), 1}, change_, &second_,
                             terms_.parallel);
  AddProductInBlocks(second_.transposed(), change_, &first_, terms_.parallel);
}

// Q <- Q - eta (X + X') + eta^2 H E'E H' with X = W'E H'. With K = H Gamma H', which is
// (I - M) / (2 eta), (W'E - Q H Gamma) H' is X - Q K; so H E'E H' is F + F' where
// F = 2 (X - Q K)' K + H (A'1 + N/2 sigma) (H sigma)' + H A'A H' / 2.
void LargeBatchForm::UpdateGram() {
  WriteHalfOfGram();
  const PaddedMatrix &half = first_, &transpose = second_;
  TransposeInto(half.data(), half.stride(), half.rows(), half.width(), transpose.data(),
                transpose.stride(), terms_.parallel);
  WriteProductsOfSums();
  const double *by_rest = sums_.row(0), *by_sum = sums_.row(1);
  gram_.CopyFrom(terms_.gram, terms_.parallel);
  ForEachRow(gram_.rows(), 2 * gram_.width(), terms_.parallel, [&](int64_t i) {
    double* row = gram_.row(i);
    for (int64_t j = 0; j <= i; ++j) {
      row[j] += by_rest[i] * by_sum[j] + by_sum[i] * by_rest[j] -
                (half.row(i)[j] + transpose.row(i)[j]) / 2;
    }
  });
  AddSquaresOfTargets();
}

const char* LargeBatchForm::FirstNotFinite() const {
  if (!AllFinite(mixing_, terms_.parallel)) return "mixing";
  if (!AllFinite(inverse_, terms_.parallel)) return "inverse";
  return LowerIsFinite(gram_, terms_.parallel) ? nullptr : "gram";
}

void LargeBatchForm::Write() {
  const int64_t width = terms_.width();
  ForEachRow(width, width, terms_.parallel, [&](int64_t i) {
    std::copy_n(mixing_.row(i), width, terms_.mixing + i * width);
    std::copy_n(inverse_.row(i), width, terms_.inverse + i * width);
    std::copy_n(gram_.row(i), i + 1, terms_.gram + i * width);
  });
  MirrorLower(width, terms_.gram, width, terms_.parallel);
}

}  // namespace largeout
