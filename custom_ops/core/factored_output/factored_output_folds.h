// Changes of the basis of V in a factored output layer. A row of V takes them when it is next
// used.
//
// V U does not change if V becomes V G and U becomes G^-1 U. Steps shrink or stretch U along
// few directions, for example that of the mean of all features. As V is float, U must not
// become singular. A fold chooses a G that corrects one direction, where x'U = n y' with x and
// y of length 1, and p is the index of the largest number of x:
//
//   kSmall, for a small n: row p of U becomes y'. G is I except for row p, which has n / x_p
//     at p and -x_k / x_p elsewhere.
//   kLarge, for a large n: row p of U is divided by n x_p, and its former value times x_k / x_p
//     is subtracted from each other row k. G is I except for column p, which is n x.
//   kAll, for all directions at once: G is I times a number.
//
// A fold writes U and its inverse, and appends G to a log. A row of V has taken the first
// `seen` folds of the log, and takes the others when it is read or written. The cost does not
// depend on the number of classes. A row that has taken some folds of a direction that shrinks
// has nothing left along it, so the following folds do not change it.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_FACTORED_OUTPUT_FACTORED_OUTPUT_FOLDS_H_
#define LARGEOUT_CUSTOM_OPS_CORE_FACTORED_OUTPUT_FACTORED_OUTPUT_FOLDS_H_

#include <cmath>
#include <cstdint>
#include <numeric>

#include "custom_ops/core/base/host_device.h"

namespace largeout {

enum class FoldKind { kSmall, kLarge, kAll };

// The log. Arbitrary numbers in it are safe.
struct FactoredFolds {
  // [capacity + 1, width + 1]. The first number is the number of folds. Row i + 1 is fold i.
  // Its first number is p, or -1 - p for kLarge, or `width` for kAll. The other numbers are the
  // row or column of its G, or for kAll the number.
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
  // REQUIRES: the fold is not kAll.
  LARGEOUT_HOST_DEVICE int64_t PlaceOf(const double* fold) const {
    const auto number = static_cast<int64_t>(fold[0]);
    return number < 0 ? -1 - number : number;
  }
};

// row [width] becomes row G. If the fold is kSmall, a component of up to `negligible` along p
// does not change the other numbers.
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
  constexpr int64_t kSums = 8;  // independent sums, so that additions overlap
  double sums[kSums] = {};
  int64_t k = 0;
  for (; k + kSums <= width; k += kSums) {
    for (int64_t i = 0; i < kSums; ++i) sums[i] += std::abs(static_cast<double>(row[k + i]));
  }
  for (int64_t i = 0; k + i < width; ++i) sums[i] += std::abs(static_cast<double>(row[k + i]));
  return std::accumulate(sums, sums + kSums, 0.0);
}

// Applies all folds but the first `seen` to the row.
template <class Number>
void TakeFolds(const FactoredFolds& folds, uint32_t seen, Number* row) {
  const int64_t count = folds.count();
  if (static_cast<int64_t>(seen) >= count) return;
  constexpr double kNegligible = 0x1p-48;  // relative to the sum, because |x_k / x_p| <= 1
  const double sum = AbsoluteSum(row, folds.width);
  if (sum == 0) return;
  for (int64_t i = seen; i < count; ++i) {
    FoldRow(folds, folds.fold(i), kNegligible * sum, row);
  }
}

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_FACTORED_OUTPUT_FACTORED_OUTPUT_FOLDS_H_
