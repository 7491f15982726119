// The block bodies of factored_output_folds.cu. A block applies the folds to one row.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_FACTORED_OUTPUT_FOLDS_BODY_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_FACTORED_OUTPUT_FOLDS_BODY_H_

#include <cstdint>

#include "custom_ops/core/factored_output/factored_output.h"
#include "custom_ops/cuda/block_tools.h"
#include "custom_ops/cuda/factored_output_body.h"

namespace largeout {
namespace cuda {

// Applies folds to a row [width] in place, with a block of kThreads threads.
template <class Number>
struct RowFolder {
  FactoredFolds folds;
  Number* row;
  double* sums;  // [kThreads], shared

  static constexpr int kThreads = 64;

  // Applies all folds but the first `seen`. A kSmall fold does not change a row whose number at
  // the place of the fold is 0, so it is skipped.
  template <class Block>
  LARGEOUT_DEVICE void Take(const Block& block, uint32_t seen) const {
    const int64_t count = folds.count();
    for (int64_t i = seen; i < count; ++i) {
      const double* const fold = folds.fold(i);
      const FoldKind kind = folds.KindOf(fold);
      const double along = kind == FoldKind::kSmall ? row[folds.PlaceOf(fold)] : 0;
      if (kind == FoldKind::kSmall && along == 0) continue;
      block.ForEachThread([&](int thread) {
        double sum = 0;
        for (int64_t k = thread; kind == FoldKind::kLarge && k < folds.width; k += kThreads) {
          sum += row[k] * fold[k + 1];
        }
        sums[thread] = sum;
      });
      block.ForEachThread([&](int thread) { Write(fold, kind, along, thread); });
    }
  }

 private:
  LARGEOUT_DEVICE void Write(const double* fold, FoldKind kind, double along,
                             int thread) const {
    if (kind == FoldKind::kLarge) {
      double sum = 0;
      for (int i = 0; i < kThreads; ++i) sum += sums[i];
      if (thread == 0) row[folds.PlaceOf(fold)] = static_cast<Number>(sum);
      return;
    }
    for (int64_t k = thread; k < folds.width; k += kThreads) {
      if (kind == FoldKind::kAll) {
        row[k] = static_cast<Number>(row[k] * fold[1]);
      } else {
        const double rest = k == folds.PlaceOf(fold) ? 0 : row[k];
        row[k] = static_cast<Number>(rest + along * fold[k + 1]);
      }
    }
  }
};

template <class Number>
struct CopyRowsBody {
  FactoredState<Number> state;
  const int64_t* ids;
  int64_t num_ids;
  double* rows;

  static constexpr int kThreads = RowFolder<double>::kThreads;
  static constexpr int kSharedBytes = kThreads * sizeof(double);

  template <class Block>
  LARGEOUT_DEVICE void operator()(const Block& block, char* shared) const {
    for (int64_t i = block.index(); i < num_ids; i += block.num_blocks()) {
      const int64_t id = ids[i];
      const bool is_class = IsClass(id, state.num_classes);
      double* const row = rows + i * state.width;
      block.ForEachThread([&](int thread) {
        for (int64_t k = thread; k < state.width; k += kThreads) {
          row[k] = is_class ? state.vectors[id * state.width + k] : 0;
        }
      });
      const RowFolder<double> folder{state.folds, row, reinterpret_cast<double*>(shared)};
      if (is_class) folder.Take(block, state.seen[id]);
    }
  }
};

template <class Number>
struct TakeAllFoldsBody {
  FactoredFolds folds;
  const uint32_t* seen;
  int64_t num_classes;
  Number* vectors;

  static constexpr int kThreads = RowFolder<Number>::kThreads;
  static constexpr int kSharedBytes = kThreads * sizeof(double);

  template <class Block>
  LARGEOUT_DEVICE void operator()(const Block& block, char* shared) const {
    for (int64_t i = block.index(); i < num_classes; i += block.num_blocks()) {
      const RowFolder<Number> folder{folds, vectors + i * folds.width,
                                     reinterpret_cast<double*>(shared)};
      folder.Take(block, seen[i]);
    }
  }
};

}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_FACTORED_OUTPUT_FOLDS_BODY_H_
