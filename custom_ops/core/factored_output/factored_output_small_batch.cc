#include <algorithm>

#include "custom_ops/core/factored_output/factored_output_forms.h"
#include "custom_ops/core/linear_algebra/dense_product.h"
#include "custom_ops/core/linear_algebra/lu_factors.h"
#include "custom_ops/core/linear_algebra/magnitude.h"

namespace largeout {

template <class Number>
SmallBatchForm<Number>::SmallBatchForm(const FactoredTerms<Number>& terms, Arena* arena)
    : terms_(terms),
      stack_(3 * terms.batch(), terms.width(), arena),
      columns_(terms.width(), terms.batch(), arena),
      of_mixing_(terms.batch(), terms.width(), arena),
      of_inverse_(terms.batch(), terms.width(), arena),
      scaled_(terms.batch(), terms.width(), arena),
      small_(terms.batch(), terms.batch(), arena),
      half_(terms.batch(), terms.batch(), arena),
      square_(terms.width(), terms.width(), arena) {}

template <class Number>
int64_t SmallBatchForm<Number>::Size(int64_t batch, int64_t width) {
  return Matrix::Size(3 * batch, width) + Matrix::Size(width, batch) +
         3 * Matrix::Size(batch, width) + 2 * Matrix::Size(batch, batch) +
         Matrix::Size(width, width);
}

template <class Number>
double SmallBatchForm<Number>::Compute(double min_pivot, Matrix* solved) {
  const Matrix& features = terms_.features;
  TransposeInto(features.data(), features.stride(), features.rows(), features.width(),
                columns_.data(), columns_.stride(), terms_.parallel);
  square_.CopyFrom(terms_.inverse, terms_.parallel);
  solved->Fill(0, terms_.parallel);
  AddProductInBlocks(features.view(), square_, solved, terms_.parallel);
  solved_ = solved;
  const double pivot = Solve(min_pivot, solved);
  if (!(pivot >= min_pivot)) return pivot;
  const double twice_rate = 2 * terms_.learning_rate;
  const FactoredSlopes& slopes = terms_.slopes;
  ScaleRows(twice_rate, slopes.by_q, features.data(), features.stride(), terms_.parallel,
            &of_inverse_);
  ScaleRows(-twice_rate, slopes.by_q, slopes.mixed_features, terms_.width(), terms_.parallel,
            &of_mixing_);
  WriteHalfOfGram();
  return pivot;
}

// Woodbury: with S = I - 2 eta H'H Gamma, T = S^-1 H' U^-1 is H' times the inverse of the new
// U. Returns the smallest pivot of S.
template <class Number>
double SmallBatchForm<Number>::Solve(double min_pivot, Matrix* solved) {
  small_.Fill(0, terms_.parallel);
  AddLowerProduct(terms_.features.view(), columns_, &small_, terms_.parallel);
  MirrorLower(small_.rows(), small_.data(), small_.stride(), terms_.parallel);
  for (int64_t i = 0; i < terms_.batch(); ++i) {
    Number* row = small_.row(i);
    for (int64_t j = 0; j < terms_.batch(); ++j) {
      row[j] *= -2 * terms_.learning_rate * terms_.slopes.by_q[j];
    }
    row[i] += 1;
  }
  LuFactors<Number> factors(&small_);
  const double pivot = factors.Factor(min_pivot, terms_.parallel);
  if (pivot >= min_pivot) factors.Solve(solved, terms_.parallel);
  return pivot;
}

// squares [batch, batch] = eta^2 / 2 times E'E. With B = W'E - Q H Gamma, E'E is F + F' where
// F = 2 B'H Gamma + (A'1 + N/2 sigma) sigma' + A'A / 2.
template <class Number>
void SmallBatchForm<Number>::WriteScaledSquares(Matrix* squares) {
  const int64_t size = terms_.batch(), width = terms_.width();
  const double factor = terms_.learning_rate * terms_.learning_rate / 2;
  const FactoredSlopes& slopes = terms_.slopes;
  ForEachRow(size, width, terms_.parallel, [&](int64_t j) {
    const double *by_features = terms_.by_features.row(j), by_q = slopes.by_q[j];
    const double* gram = slopes.gram_features + j * width;
    Number* row = scaled_.row(j);
    for (int64_t k = 0; k < width; ++k) row[k] = by_features[k] - by_q * gram[k];
  });
  half_.Fill(0, terms_.parallel);
  AddProductInBlocks(scaled_.view(), columns_, &half_, terms_.parallel);
  for (int64_t i = 0; i < size; ++i) {
    const double rest = terms_.target_sums[i] + 0.5 * terms_.num_classes * slopes.by_s[i];
    Number* row = half_.row(i);
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

// Q <- Q - L H' - H L' with L = eta W'E - eta^2/2 H E'E. This is one product of twice the
// depth, because the rows of -L' are stored between those of H' and a second copy of H'.
template <class Number>
void SmallBatchForm<Number>::WriteHalfOfGram() {
  const int64_t size = terms_.batch();
  WriteScaledSquares(&small_);
  Matrix negative = stack_.Rows(size, size);
  ForEachRow(size, 3 * terms_.width(), terms_.parallel, [&](int64_t j) {
    const double* by_features = terms_.by_features.row(j);
    Number* row = negative.row(j);
    for (int64_t k = 0; k < terms_.width(); ++k) {
      row[k] = -terms_.learning_rate * by_features[k];
    }
    for (int64_t i : {j, 2 * size + j}) {
      std::copy_n(terms_.features.row(j), terms_.width(), stack_.row(i));
    }
  });
  AddProductInBlocks(small_.view(), terms_.features, &negative, terms_.parallel);
}

template <class Number>
const char* SmallBatchForm<Number>::FirstNotFinite() const {
  const double features = SumOfAbsolutes(terms_.features);
  if (!ProductFits<Number>(SumOfAbsolutes(of_mixing_), features)) return "mixing";
  if (!ProductFits<Number>(SumOfAbsolutes(of_inverse_), SumOfAbsolutes(*solved_))) {
    return "inverse";
  }
  const double half = SumOfAbsolutes(stack_.Rows(terms_.batch(), terms_.batch()));
  return ProductFits<Number>(2 * half, features) ? nullptr : "gram";
}

// U <- U - 2 eta (U H) Gamma H', U^-1 <- U^-1 + 2 eta H Gamma T, and Q.
template <class Number>
void SmallBatchForm<Number>::Write() {
  const int64_t size = terms_.batch(), width = terms_.width();
  AddProductToDoubles(width, of_mixing_.transposed(), terms_.features, terms_.mixing, width,
                      terms_.parallel);
  AddProductToDoubles(width, of_inverse_.transposed(), *solved_, terms_.inverse, width,
                      terms_.parallel);
  AddLowerProductToDoubles(width, stack_.Rows(size, 2 * size).transposed(),
                           stack_.Rows(0, 2 * size), terms_.gram, width, terms_.parallel);
  MirrorLower(width, terms_.gram, width, terms_.parallel);
}

template class SmallBatchForm<float>;
template class SmallBatchForm<double>;

}  // namespace largeout
