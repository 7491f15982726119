// Changes of the basis of V in a factored output layer, which its rows take when they are met.
//
// V U stays as it is where V becomes V G and U becomes G^-1 U. Steps shrink or stretch U along
// few directions, for example that of the mean of all features; as V is float, U must not
// become singular. A fold takes a G that ends that for one direction, where x'U = n y' with x
// and y of length 1, and p is the place of the largest number of x:
//
//   kSmall, for a small n: row p of U becomes y'. G is I but for row p, which has n / x_p at p
//     and -x_k / x_p elsewhere.
//   kLarge, for a large n: row p of U becomes its 1 / (n x_p), and what it was, times
//     x_k / x_p, is taken off the other rows k. G is I but for column p, which is n x.
//   kAll, for all directions at once: G is I times a number.
//
// A fold writes U and its inverse, and G into a log. A row of V has been through the first
// `seen` folds of that, and takes the others when it is read or written: that costs the same
// for any number of classes. One that has been through some folds of a direction that shrinks
// has nothing left along it, so that the next ones leave it as it is.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_FACTORED_OUTPUT_FACTORED_OUTPUT_FOLDS_H_
#define LARGEOUT_CUSTOM_OPS_CORE_FACTORED_OUTPUT_FACTORED_OUTPUT_FOLDS_H_

#include <cmath>
#include <cstdint>
#include <numeric>

#include "custom_ops/core/base/host_device.h"

namespace largeout {

enum class FoldKind { kSmall, kLarge, kAll };

// The log. Any numbers in it are safe.
struct FactoredFolds {
  // [capacity + 1, width + 1]. The first number is that of folds. Row i + 1 is fold i: its p,
  // or -1 - p where it is kLarge, or `width` where it is kAll; and the row or column of its G,
  // or the number.
  double* log;
  int64_t capacity;
  int64_t width;

  LARGEOUT_HOST_DEVICE int64_t count() const {
    const double count = log[0];
    if (!(count > 0)) return 0;
    return count < static_cast<double>(capacity) ? static_cast<int64_t>(count) : capacity;
  }
  int64_t size() const { return (capacity + 1) * (width + 1); }
  bool HasRoomFor(int64_t more) const { return count() + more <= capacity; }
  LARGEOUT_HOST_DEVICE double* fold(int64_t i) const { return log + (i + 1) * (width + 1); }

  LARGEOUT_HOST_DEVICE FoldKind KindOf(const double* fold) const {
    const auto size = static_cast<double>(width);
    if (!(fold[0] >= -size && fold[0] < size)) return FoldKind::kAll;
    return fold[0] < 0 ? FoldKind::kLarge : FoldKind::kSmall;
  }
  // REQUIRES: it is not kAll.
  LARGEOUT_HOST_DEVICE int64_t PlaceOf(const double* fold) const {
    const auto number = static_cast<int64_t>(fold[0]);
    return number < 0 ? -1 - number : number;
  }
};

// row [width] becomes row G. Where the fold is kSmall, up to `negligible` along p is left out
// of the other numbers.
template <class Number>
void FoldRow(const FactoredFolds& folds, const double* fold, double negligible, Number* row) {
  const FoldKind kind = folds.KindOf(fold);
  const double* const factors = fold + 1;
  if (kind == FoldKind::kAll) {
    for (int64_t k = 0; k < folds.width; ++k) {
      row[k] = static_cast<Number>(row[k] * factors[0]);
    }
    return;
  }
  Number& at_place = row[folds.PlaceOf(fold)];
  double sum = 0;
  if (kind == FoldKind::kLarge) {
    for (int64_t k = 0; k < folds.width; ++k) sum += row[k] * factors[k];
  } else {
    const double along = at_place;
    sum = along * factors[folds.PlaceOf(fold)];
    for (int64_t k = 0; k < folds.width && std::abs(along) > negligible; ++k) {
      row[k] = static_cast<Number>(row[k] + along * factors[k]);
    }
  }
  at_place = static_cast<Number>(sum);
}

template <class Number>
double AbsoluteSum(const Number* row, int64_t width) {
  constexpr int64_t kSums = 8;  // so that additions need not wait for each other
  double sums[kSums] = {};
  int64_t k = 0;
  for (; k + kSums <= width; k += kSums) {
    for (int64_t i = 0; i < kSums; ++i) sums[i] += std::abs(static_cast<double>(row[k + i]));
  }
  for (int64_t i = 0; k + i < width; ++i) sums[i] += std::abs(static_cast<double>(row[k + i]));
  return std::accumulate(sums, sums + kSums, 0.0);
}

// The row takes all folds but the first `seen`.
template <class Number>
void TakeFolds(const FactoredFolds& folds, uint32_t seen, Number* row) {
  const int64_t count = folds.count();
  if (static_cast<int64_t>(seen) >= count) return;
  constexpr double kNegligible = 0x1p-48;  // of the sum, as |x_k / x_p| <= 1
  const double sum = AbsoluteSum(row, folds.width);
  if (sum == 0) return;
  for (int64_t i = seen; i < count; ++i) {
    FoldRow(folds, folds.fold(i), kNegligible * sum, row);
  }
}

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_FACTORED_OUTPUT_FACTORED_OUTPUT_FOLDS_H_
