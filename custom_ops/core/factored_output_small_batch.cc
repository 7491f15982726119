#include <algorithm>

#include "custom_ops/core/dense_product.h"
#include "custom_ops/core/factored_output_forms.h"
#include "custom_ops/core/lu_factors.h"

namespace largeout {

SmallBatchForm::SmallBatchForm(const FactoredTerms& terms, Arena* arena)
    : terms_(terms),
      stack_(3 * terms.batch(), terms.width(), arena),
      scaled_(terms.batch(), terms.width(), arena),
      small_(terms.batch(), terms.batch(), arena),
      half_(terms.batch(), terms.batch(), arena) {}

int64_t SmallBatchForm::Size(int64_t batch, int64_t width) {
  return 4 * PaddedMatrix::Size(batch, width) + 2 * PaddedMatrix::Size(batch, batch);
}

// Woodbury: with S = I - 2 eta H'H Gamma and T = S^-1 H' U^-1, which is H' times the inverse of
// the new U, U^-1 becomes U^-1 + 2 eta H Gamma T. Returns the smallest pivot of S.
double SmallBatchForm::UpdateInverse(double min_pivot, PaddedMatrix* inverse,
                                     PaddedMatrix* solved) {
  small_.Fill(0, terms_.parallel);
  AddProductInBlocks(terms_.features.view(), terms_.columns, &small_, terms_.parallel);
  const double twice_rate = 2 * terms_.learning_rate;
  for (int64_t i = 0; i < terms_.batch(); ++i) {
    double* row = small_.row(i);
    for (int64_t j = 0; j < terms_.batch(); ++j) row[j] *= -twice_rate * terms_.slopes.by_q[j];
    row[i] += 1;
  }
  LuFactors factors(&small_);
  const double pivot = factors.Factor(min_pivot, terms_.parallel);
  if (!(pivot >= min_pivot)) return pivot;
  inverse->CopyFrom(terms_.inverse, terms_.parallel);
  solved->Fill(0, terms_.parallel);
  AddProductInBlocks(terms_.features.view(), *inverse, solved, terms_.parallel);
  factors.Solve(solved, terms_.parallel);
  ScaleRows(twice_rate, terms_.slopes.by_q, terms_.features.data(), terms_.features.stride(),
            terms_.parallel, &scaled_);
  AddProductInBlocks(scaled_.transposed(), *solved, inverse, terms_.parallel);
  return pivot;
}

// U <- U - 2 eta (U H) Gamma H'.
void SmallBatchForm::UpdateMixing(PaddedMatrix* mixing) {
  const FactoredSlopes& slopes = terms_.slopes;
  ScaleRows(-2 * terms_.learning_rate, slopes.by_q, slopes.mixed_features, terms_.width(),
            terms_.parallel, &scaled_);
  AddProductInBlocks(scaled_.transposed(), terms_.features, mixing, terms_.parallel);
}

// squares [batch, batch] = eta^2 / 2 times E'E. With B = W'E - Q H Gamma, E'E is F + F' where
// F = 2 B'H Gamma + (A'1 + N/2 sigma) sigma' + A'A / 2.
void SmallBatchForm::WriteScaledSquares(PaddedMatrix* squares) {
  const int64_t size = terms_.batch();
  const double factor = terms_.learning_rate * terms_.learning_rate / 2;
  const FactoredSlopes& slopes = terms_.slopes;
  ScaleRows(-1, slopes.by_q, slopes.gram_features, terms_.width(), terms_.parallel, &scaled_);
  ForEachRow(size, terms_.width(), terms_.parallel, [&](int64_t j) {
    const double* by_features = terms_.by_features.row(j);
    double* row = scaled_.row(j);
    for (int64_t k = 0; k < terms_.width(); ++k) row[k] += by_features[k];
  });
  half_.Fill(0, terms_.parallel);
  AddProductInBlocks(scaled_.view(), terms_.columns, &half_, terms_.parallel);
  for (int64_t i = 0; i < size; ++i) {
    const double rest = terms_.target_sums[i] + 0.5 * terms_.num_classes * slopes.by_s[i];
    double* row = half_.row(i);
    for (int64_t j = 0; j < size; ++j) {
      row[j] = factor * (2 * row[j] * slopes.by_q[j] + rest * slopes.by_s[j]);
    }
  }
  TransposeInto(half_.data(), half_.stride(), size, size, squares->data(), squares->stride(),
                terms_.parallel);
  for (int64_t i = 0; i < size; ++i) {
    for (int64_t j = 0; j < size; ++j) squares->row(i)[j] += half_.row(i)[j];
  }
  terms_.targets.AddGram(factor, squares);
}

// Q <- Q - L H' - H L' with L = eta W'E - eta^2/2 H E'E: one product of twice the depth, as the
// rows of -L' stand between those of H' and those of H' again.
void SmallBatchForm::UpdateGram(PaddedMatrix* gram) {
  const int64_t size = terms_.batch();
  WriteScaledSquares(&small_);
  PaddedMatrix negative = stack_.Rows(size, size);
  ForEachRow(size, 3 * terms_.width(), terms_.parallel, [&](int64_t j) {
    const double* by_features = terms_.by_features.row(j);
    double* row = negative.row(j);
    for (int64_t k = 0; k < terms_.width(); ++k)
      row[k] = -terms_.learning_rate * by_features[k];
    for (int64_t i : {j, 2 * size + j}) {
      std::copy_n(terms_.features.row(j), terms_.width(), stack_.row(i));
    }
  });
  AddProductInBlocks(small_.view(), terms_.features, &negative, terms_.parallel);
  gram->CopyFrom(terms_.gram, terms_.parallel);
  AddLowerProduct(stack_.Rows(size, 2 * size).transposed(), stack_.Rows(0, 2 * size), gram,
                  terms_.parallel);
}

}  // namespace largeout
