// The thread and block bodies of SolveSystem, except products of matrices. One block factors a
// panel of columns, because each column depends on the one before it. All later columns are
// then updated in parallel, one per thread.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_LU_FACTORS_BODY_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_LU_FACTORS_BODY_H_

#include <cmath>
#include <cstdint>

#include "custom_ops/cuda/block_tools.h"

namespace largeout {
namespace cuda {

inline constexpr int kPanelWidth = 32;  // columns that are factored together

// Columns [first, last) of a matrix, and the rows with the same numbers.
struct LuPanel {
  double* matrix;
  int64_t rows;
  int64_t stride;
  int64_t first, last;
  double min_pivot;
  int32_t* swapped_with;   // [rows]: the row that was swapped with row k
  double* smallest_pivot;  // up to now

  LARGEOUT_DEVICE double& At(int64_t i, int64_t j) const { return matrix[i * stride + j]; }
  LARGEOUT_DEVICE bool Refused() const { return !(*smallest_pivot >= min_pivot); }
};

// Factors the panel, from row `first` on. Multipliers are stored negated, so that elimination
// adds.
struct FactorPanelBody {
  LuPanel panel;

  static constexpr int kThreads = 256;
  static constexpr int kSome = 16;  // threads that each reduce the results of kSome threads
  static_assert(kSome * kSome == kThreads && kPanelWidth <= kThreads);

  struct Found {
    double size;  // absolute value
    int64_t row;

    // The first row wins ties. NaN is never taken.
    LARGEOUT_DEVICE void Take(const Found& other) {
      if (other.size > size || (other.size == size && other.row < row)) *this = other;
    }
  };
  static constexpr int kSharedBytes = kThreads * sizeof(Found);

  // Runs on one block.
  template <class Block>
  LARGEOUT_DEVICE void operator()(const Block& block, char* shared) const {
    auto* const found = reinterpret_cast<Found*>(shared);
    block.ForEachThread([&](int thread) {
      if (thread == 0 && panel.first == 0) *panel.smallest_pivot = INFINITY;
    });
    if (panel.Refused()) return;
    for (int64_t k = panel.first; k < panel.last; ++k) {
      FindLargest(block, k, found);
      block.ForEachThread([&](int thread) { Swap(k, found, thread); });
      if (panel.Refused()) return;
      block.ForEachThread([&](int thread) { Eliminate(k, thread); });
    }
  }

 private:
  // found[0, kSome): one of these is the largest number of column k, from row k on.
  template <class Block>
  LARGEOUT_DEVICE void FindLargest(const Block& block, int64_t k, Found* found) const {
    block.ForEachThread([&](int thread) {
      Found largest = {-1, k};
      for (int64_t i = k + thread; i < panel.rows; i += kThreads) {
        largest.Take({fabs(panel.At(i, k)), i});
      }
      found[thread] = largest;
    });
    block.ForEachThread([&](int thread) {
      if (thread >= kSome) return;
      for (int i = kSome; i < kThreads; i += kSome) found[thread].Take(found[thread + i]);
    });
  }

  LARGEOUT_DEVICE void Swap(int64_t k, const Found* found, int thread) const {
    Found largest = found[0];
    for (int i = 1; i < kSome; ++i) largest.Take(found[i]);
    const int64_t column = panel.first + thread;
    if (column >= panel.last) return;
    const double below = panel.At(largest.row, column);
    panel.At(largest.row, column) = panel.At(k, column);
    panel.At(k, column) = below;
    if (column != k) return;
    panel.swapped_with[k] = static_cast<int32_t>(largest.row);
    const double pivot = fabs(below);
    if (!(pivot >= *panel.smallest_pivot)) *panel.smallest_pivot = pivot;
  }

  LARGEOUT_DEVICE void Eliminate(int64_t k, int thread) const {
    const double inverse_pivot = 1 / panel.At(k, k);
    for (int64_t i = k + 1 + thread; i < panel.rows; i += kThreads) {
      const double multiplier = -panel.At(i, k) * inverse_pivot;
      panel.At(i, k) = multiplier;
      for (int64_t j = k + 1; j < panel.last; ++j) {
        panel.At(i, j) += multiplier * panel.At(k, j);
      }
    }
  }
};

// Updates the panel's rows in a later column: swaps them, then eliminates.
struct FollowPanelBody {
  LuPanel panel;

  LARGEOUT_DEVICE void operator()(int64_t index) const {
    if (panel.Refused()) return;
    const int64_t column = panel.last + index;
    for (int64_t k = panel.first; k < panel.last; ++k) {
      const int64_t other = panel.swapped_with[k];
      const double number = panel.At(other, column);
      panel.At(other, column) = panel.At(k, column);
      panel.At(k, column) = number;
    }
    double done[kPanelWidth];
    for (int64_t i = panel.first; i < panel.last; ++i) {
      double sum = panel.At(i, column);
      for (int64_t j = panel.first; j < i; ++j) sum += panel.At(i, j) * done[j - panel.first];
      panel.At(i, column) = done[i - panel.first] = sum;
    }
  }
};

// Replaces a column of Y by that of X, in the panel's rows. The products with the rows below
// have been subtracted before.
struct SolvePanelBody {
  LuPanel panel;

  LARGEOUT_DEVICE void operator()(int64_t index) const {
    if (panel.Refused()) return;
    const int64_t column = panel.rows + index;
    double done[kPanelWidth];
    for (int64_t i = panel.last - 1; i >= panel.first; --i) {
      double sum = panel.At(i, column);
      for (int64_t j = i + 1; j < panel.last; ++j) {
        sum -= panel.At(i, j) * done[j - panel.first];
      }
      panel.At(i, column) = done[i - panel.first] = sum / panel.At(i, i);
    }
  }
};

}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_LU_FACTORS_BODY_H_
