#include "custom_ops/core/factored_output/factored_output.h"

namespace largeout {

// A row always matches its entry of `seen`, even if a thread throws.
template <class Number>
void TakeAllFolds(const FactoredState<Number>& state, const ParallelFor& parallel) {
  if (state.folds.count() == 0) return;
  ForEachRow(state.num_classes, 4 * state.width, parallel, [&](int64_t id) {
    TakeFolds(state.folds, state.seen[id], state.vectors + id * state.width);
    state.seen[id] = static_cast<uint32_t>(state.folds.count());
  });
  std::fill_n(state.seen, state.num_classes, 0);
  std::fill_n(state.folds.log, state.folds.size(), 0.0);
}

template <class Number>
void TakeAllFolds(const FactoredFolds& folds, const uint32_t* seen, int64_t num_classes,
                  const ParallelFor& parallel, Number* vectors) {
  ForEachRow(num_classes, 4 * folds.width, parallel,
             [&](int64_t id) { TakeFolds(folds, seen[id], vectors + id * folds.width); });
}

#define LARGEOUT_INSTANTIATE(Number)                                            \
  template void TakeAllFolds(const FactoredState<Number>&, const ParallelFor&); \
  template void TakeAllFolds(const FactoredFolds&, const uint32_t*, int64_t,    \
                             const ParallelFor&, Number*);
LARGEOUT_INSTANTIATE(float)
LARGEOUT_INSTANTIATE(double)
#undef LARGEOUT_INSTANTIATE

}  // namespace largeout
