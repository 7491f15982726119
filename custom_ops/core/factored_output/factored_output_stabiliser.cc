#include "custom_ops/core/factored_output/factored_output_stabiliser.h"

#include <algorithm>
#include <cmath>

#include "custom_ops/core/base/finite.h"
#include "custom_ops/core/linear_algebra/row_arithmetic.h"

namespace largeout {
namespace {

// Limits of the means of the squares of all singular values, and of their inverses. Above
// kMost, one direction loses a factor of 15 sqrt(width) of the 10^7 that float resolves; folds
// continue until no mean is above kNear. Below kLeast, all singular values are on one side of
// 1.
constexpr double kMost = 225, kNear = 9, kLeast = 0.25;
constexpr double kLeastPivot = 1e-12;

void Scale(double factor, int64_t size, double* numbers) {
  for (int64_t i = 0; i < size; ++i) numbers[i] *= factor;
}

void Normalise(std::vector<double>* vector) {
  const int64_t size = static_cast<int64_t>(vector->size());
  Scale(1 / std::sqrt(SumOfSquares(vector->data(), size)), size, vector->data());
}

// to = matrix x vector, and to = vector' x matrix.
void Multiply(const double* matrix, const std::vector<double>& vector,
              std::vector<double>* to) {
  const int64_t width = static_cast<int64_t>(vector.size());
  for (int64_t i = 0; i < width; ++i) {
    (*to)[i] = Dot(matrix + i * width, vector.data(), width);
  }
}
void MultiplyLeft(const std::vector<double>& vector, const double* matrix,
                  std::vector<double>* to) {
  const int64_t width = static_cast<int64_t>(vector.size());
  std::fill(to->begin(), to->end(), 0.0);
  for (int64_t i = 0; i < width; ++i) {
    for (int64_t k = 0; k < width; ++k) (*to)[k] += vector[i] * matrix[i * width + k];
  }
}

bool IsOutside(double most, double mixing_squares, double inverse_squares, int64_t width) {
  const auto [low, high] = std::minmax(mixing_squares, inverse_squares);
  return low < kLeast * width || high > most * width;
}

int64_t LargestOf(const std::vector<double>& vector) {
  const auto less = [](double a, double b) { return std::abs(a) < std::abs(b); };
  return std::max_element(vector.begin(), vector.end(), less) - vector.begin();
}

}  // namespace

double SumOfSquares(const double* numbers, int64_t size) { return Dot(numbers, numbers, size); }

FactoredStabiliser::FactoredStabiliser(int64_t width, bool invert)
    : width_(width),
      invert_(invert),
      arena_(2 * PaddedMatrix::Size(invert * width, invert * width)),
      matrix_(invert * width, invert * width, &arena_),
      new_inverse_(invert * width, invert * width, &arena_),
      factors_(&matrix_),
      x_(width),
      y_(width) {}

bool FactoredStabiliser::IsDue(double mixing_squares, double inverse_squares, int64_t width) {
  return IsOutside(kMost, mixing_squares, inverse_squares, width);
}

void FactoredStabiliser::Run(double* mixing, double* inverse, const FactoredFolds& folds,
                             const ParallelFor& parallel) {
  if (invert_) Invert(mixing, inverse, parallel);
  double most = kMost;
  for (int i = 0; i < kMostFolds && FoldOnce(most, mixing, inverse, folds); ++i) most = kNear;
}

void FactoredStabiliser::Invert(const double* mixing, double* inverse,
                                const ParallelFor& parallel) {
  matrix_.CopyFrom(mixing, parallel);
  if (!(factors_.Factor(kLeastPivot, parallel) >= kLeastPivot)) return;
  new_inverse_.Fill(0, parallel);
  for (int64_t i = 0; i < width_; ++i) new_inverse_.row(i)[i] = 1;
  factors_.Solve(&new_inverse_, parallel);
  for (int64_t i = 0; i < width_; ++i) {
    if (!AllFinite(new_inverse_.row(i), width_)) return;
  }
  for (int64_t i = 0; i < width_; ++i) {
    std::copy_n(new_inverse_.row(i), width_, inverse + i * width_);
  }
}

// Makes one fold, if one is needed. Returns whether it did.
bool FactoredStabiliser::FoldOnce(double most, double* mixing, double* inverse,
                                  const FactoredFolds& folds) {
  const int64_t size = width_ * width_;
  const double of_mixing = SumOfSquares(mixing, size);
  const double of_inverse = SumOfSquares(inverse, size);
  if (!IsOutside(most, of_mixing, of_inverse, width_)) return false;
  double* const fold = folds.fold(folds.count());
  const double least = kLeast * width_;
  if (of_mixing < least || of_inverse < least) {
    const double mean = of_mixing < least ? of_mixing / width_ : width_ / of_inverse;
    if (!FoldAll(mean, mixing, inverse, fold)) return false;
  } else {
    const bool is_small = of_inverse > of_mixing;
    is_small ? FindSmall(inverse) : FindLarge(mixing);
    if (!(is_small ? FoldSmall(mixing, fold) : FoldLarge(mixing, fold))) return false;
    for (int64_t i = 0; i < width_; ++i) FoldRow(folds, fold, 0, inverse + i * width_);
    Correct(folds.PlaceOf(fold), mixing, inverse);
  }
  folds.log[0] = static_cast<double>(folds.count() + 1);
  return true;
}

// Scales by a power of 2, which does not round. mean: of the squares of singular values.
bool FactoredStabiliser::FoldAll(double mean, double* mixing, double* inverse,
                                 double* fold) const {
  const double factor = std::exp2(-std::round(0.5 * std::log2(mean)));
  if (!IsFinite(factor) || !IsFinite(1 / factor)) return false;
  Scale(factor, width_ * width_, mixing);
  Scale(1 / factor, width_ * width_, inverse);
  fold[0] = static_cast<double>(width_);
  fold[1] = 1 / factor;
  return true;
}

// x: approximates the left singular vector of the smallest singular value of U, by one step of
// the power method on the inverse of U, starting at its column with the largest norm.
void FactoredStabiliser::FindSmall(const double* inverse) {
  std::fill(y_.begin(), y_.end(), 0.0);
  for (int64_t i = 0; i < width_; ++i) {
    for (int64_t k = 0; k < width_; ++k) {
      const double number = inverse[i * width_ + k];
      y_[k] += number * number;
    }
  }
  const int64_t column = LargestOf(y_);
  for (int64_t i = 0; i < width_; ++i) y_[i] = inverse[i * width_ + column];
  Normalise(&y_);
  MultiplyLeft(y_, inverse, &x_);
  Normalise(&x_);
}

// x: approximates the left singular vector of the largest singular value of U, by one step of
// the power method on U, starting at its row with the largest norm.
void FactoredStabiliser::FindLarge(const double* mixing) {
  for (int64_t i = 0; i < width_; ++i) y_[i] = SumOfSquares(mixing + i * width_, width_);
  const int64_t row = LargestOf(y_);
  std::copy_n(mixing + row * width_, width_, y_.begin());
  Normalise(&y_);
  Multiply(mixing, y_, &x_);
  Normalise(&x_);
}

// Corrects the inverse so that row `place` of U U^-1 is a row of I. If a direction of U has
// shrunk by a factor, the errors of the inverse along it have grown by this factor.
void FactoredStabiliser::Correct(int64_t place, const double* mixing, double* inverse) {
  std::copy_n(mixing + place * width_, width_, y_.begin());
  MultiplyLeft(y_, inverse, &x_);
  x_[place] -= 1;
  for (int64_t i = 0; i < width_; ++i) {
    double* const row = inverse + i * width_;
    const double at_place = row[place];
    for (int64_t k = 0; k < width_; ++k) row[k] -= at_place * x_[k];
  }
}

// FoldSmall and FoldLarge fold U along x_, with n y' = x'U as in factored_output_folds.h. x_
// may be any vector. They return whether such a fold exists.
bool FactoredStabiliser::FoldSmall(double* mixing, double* fold) {
  MultiplyLeft(x_, mixing, &y_);
  const double length = std::sqrt(SumOfSquares(y_.data(), width_));
  if (!(length > 0 && IsFinite(length))) return false;
  const int64_t place = LargestOf(x_);
  fold[0] = static_cast<double>(place);
  for (int64_t k = 0; k < width_; ++k) {
    fold[k + 1] = (k == place ? length : -x_[k]) / x_[place];
    mixing[place * width_ + k] = y_[k] / length;
  }
  return true;
}

bool FactoredStabiliser::FoldLarge(double* mixing, double* fold) {
  MultiplyLeft(x_, mixing, &y_);
  const double length = std::sqrt(SumOfSquares(y_.data(), width_));
  if (!(length > 0 && IsFinite(length))) return false;
  const int64_t place = LargestOf(x_);
  double* const row = mixing + place * width_;
  fold[0] = -1.0 - place;
  for (int64_t i = 0; i < width_; ++i) {
    fold[i + 1] = length * x_[i];
    if (i == place) continue;
    for (int64_t k = 0; k < width_; ++k) mixing[i * width_ + k] -= x_[i] / x_[place] * row[k];
  }
  Scale(1 / (length * x_[place]), width_, row);
  return true;
}

}  // namespace largeout
