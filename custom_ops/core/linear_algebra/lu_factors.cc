#include "custom_ops/core/linear_algebra/lu_factors.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "custom_ops/core/base/simd_level.h"
#include "custom_ops/core/linear_algebra/dense_product.h"

namespace largeout {
namespace {

// How many columns are factored together, and how many rows are solved together.
constexpr int64_t kBlock = kWidthMultiple;
constexpr int64_t kSolvedColumns = 4 * kWidthMultiple;  // in one unit of work

// to [rows, width] += a [rows, depth] x b, in one thread.
template <class Number>
void Add(const ProductSize& size, const Number* a, int64_t a_stride, const Number* b,
         int64_t b_stride, Number* to) {
  if (size.rows == 0 || size.depth == 0) return;
  const Strided<Number> factor = {a, a_stride, 1};
  LARGEOUT_SIMD_DISPATCH(AddProduct, size, factor, b, b_stride, to, b_stride);
}

}  // namespace

template <class Number>
double LuFactors<Number>::Factor(double min_pivot, const ParallelFor& parallel) {
  double smallest = std::numeric_limits<double>::infinity();
  const int64_t size = matrix_->rows();
  for (int64_t first = 0; first < size; first += kBlock) {
    const int64_t last = std::min(first + kBlock, size);
    if (!FactorColumns(first, last, min_pivot, &smallest)) return smallest;
    if (last < size) UpdateRest(first, last, parallel);
  }
  ScaleRowsByPivots();
  return smallest;
}

// Factors columns [first, last) of the rows from `first` on. Multipliers are stored negated, so
// that elimination adds.
template <class Number>
bool LuFactors<Number>::FactorColumns(int64_t first, int64_t last, double min_pivot,
                                      double* smallest) {
  for (int64_t k = first; k < last; ++k) {
    SwapWithLargest(k);
    const Number* pivot_row = matrix_->row(k);
    const double pivot = std::abs(pivot_row[k]);
    if (!(pivot >= *smallest)) *smallest = pivot;
    if (!(pivot >= min_pivot)) return false;
    inverse_pivots_[k] = 1 / pivot_row[k];
    // The rest of the pivot row, padded so that rows are updated in whole vectors.
    Number rest[kBlock] = {};
    std::copy(pivot_row + k + 1, pivot_row + last, rest + k + 1 - first);
    for (int64_t i = k + 1; i < matrix_->rows(); ++i) {
      Number* row = matrix_->row(i);
      const Number multiplier = -row[k] * inverse_pivots_[k];
      for (int64_t j = 0; j < kBlock; ++j) row[first + j] += multiplier * rest[j];
      row[k] = multiplier;
    }
  }
  return true;
}

// Moves the largest number of column k to the diagonal. A NaN elsewhere makes its row NaN, and
// therefore the last pivot.
template <class Number>
void LuFactors<Number>::SwapWithLargest(int64_t k) {
  int64_t largest = k;
  Number most = std::abs(matrix_->row(k)[k]);
  for (int64_t i = k + 1; i < matrix_->rows(); ++i) {
    const Number absolute = std::abs(matrix_->row(i)[k]);
    if (!(absolute > most)) continue;
    largest = i;
    most = absolute;
  }
  swapped_with_[k] = largest;
  if (largest == k) return;
  std::swap_ranges(matrix_->row(k), matrix_->row(k) + matrix_->width(), matrix_->row(largest));
}

// Updates the columns after the factored ones.
template <class Number>
void LuFactors<Number>::UpdateRest(int64_t first, int64_t last, const ParallelFor& parallel) {
  const int64_t stride = matrix_->stride(), width = matrix_->padded_width() - last;
  Number* const block = matrix_->row(first);
  for (int64_t i = first + 1; i < last; ++i) {
    Number* row = matrix_->row(i);
    Add({1, i - first, width}, row + first, stride, block + last, stride, row + last);
  }
  const Strided<Number> multipliers = {matrix_->row(last) + first, stride, 1};
  AddProductInBlocks<Number>({matrix_->rows() - last, last - first, width}, multipliers,
                             block + last, stride, matrix_->row(last) + last, stride, parallel);
}

// x_i = y_i / p_i + the sum over j > i of (-u_ij / p_i) x_j.
template <class Number>
void LuFactors<Number>::ScaleRowsByPivots() {
  for (int64_t i = 0; i < matrix_->rows(); ++i) {
    Number* row = matrix_->row(i);
    for (int64_t j = i + 1; j < matrix_->width(); ++j) row[j] *= -inverse_pivots_[i];
  }
}

template <class Number>
void LuFactors<Number>::Solve(PaddedMatrixOf<Number>* x, const ParallelFor& parallel) const {
  const int64_t size = matrix_->rows();
  for (int64_t i = 0; i < size; ++i) {
    if (swapped_with_[i] == i) continue;
    std::swap_ranges(x->row(i), x->row(i) + x->width(), x->row(swapped_with_[i]));
  }
  const int64_t cost = size * size * kSolvedColumns / 4;
  parallel(CeilDiv(x->padded_width(), kSolvedColumns), cost, [&](int64_t begin, int64_t end) {
    const int64_t first = begin * kSolvedColumns;
    const int64_t last = std::min(end * kSolvedColumns, x->padded_width());
    SolveColumns(x->data() + first, x->stride(), last - first);
  });
}

template <class Number>
void LuFactors<Number>::SolveColumns(Number* x, int64_t stride, int64_t width) const {
  const int64_t size = matrix_->rows(), row_stride = matrix_->stride();
  const auto row_of_x = [&](int64_t i) { return x + i * stride; };
  for (int64_t first = 0; first < size; first += kBlock) {
    const int64_t last = std::min(first + kBlock, size);
    Add({last - first, first, width}, matrix_->row(first), row_stride, x, stride,
        row_of_x(first));
    for (int64_t i = first + 1; i < last; ++i) {
      Add({1, i - first, width}, matrix_->row(i) + first, row_stride, row_of_x(first), stride,
          row_of_x(i));
    }
  }
  for (int64_t last = size; last > 0; last = (last - 1) / kBlock * kBlock) {
    const int64_t first = (last - 1) / kBlock * kBlock;
    for (int64_t i = first; i < last; ++i) {
      for (int64_t j = 0; j < width; ++j) row_of_x(i)[j] *= inverse_pivots_[i];
    }
    Add({last - first, size - last, width}, matrix_->row(first) + last, row_stride,
        row_of_x(last), stride, row_of_x(first));
    for (int64_t i = last - 2; i >= first; --i) {
      Add({1, last - 1 - i, width}, matrix_->row(i) + i + 1, row_stride, row_of_x(i + 1),
          stride, row_of_x(i));
    }
  }
}

template class LuFactors<float>;
template class LuFactors<double>;

}  // namespace largeout
