#include "custom_ops/cuda/factored_output_folds.h"
#include "custom_ops/cuda/factored_output_folds_body.h"
#include "custom_ops/cuda/launch.cuh"
#include "custom_ops/cuda/memory.h"

namespace largeout {
namespace cuda {

template <class Number>
Status CopyRows(const FactoredState<Number>& state, const int64_t* ids, int64_t num_ids,
                double* rows, Stream stream) {
  const CopyRowsBody<Number> body{state, ids, num_ids, rows};
  return ForEachBlock(num_ids, body.kThreads, body.kSharedBytes, body, stream);
}

template <class Number>
Status TakeAllFolds(const FactoredFolds& folds, const uint32_t* seen, int64_t num_classes,
                    Number* vectors, Stream stream) {
  const TakeAllFoldsBody<Number> body{folds, seen, num_classes, vectors};
  return ForEachBlock(num_classes, body.kThreads, body.kSharedBytes, body, stream);
}

template <class Number>
Status ForgetFolds(const FactoredState<Number>& state, Stream stream) {
  const int64_t bytes = state.num_classes * static_cast<int64_t>(sizeof(*state.seen));
  const Status status = FillBytes(0, bytes, state.seen, stream);
  if (status != kOk) return status;
  const int64_t of_log = state.folds.size() * static_cast<int64_t>(sizeof(double));
  return FillBytes(0, of_log, state.folds.log, stream);
}

#define LARGEOUT_INSTANTIATE(Number)                                                       \
  template Status CopyRows(const FactoredState<Number>&, const int64_t*, int64_t, double*, \
                           Stream);                                                        \
  template Status TakeAllFolds(const FactoredFolds&, const uint32_t*, int64_t, Number*,    \
                               Stream);                                                    \
  template Status ForgetFolds(const FactoredState<Number>&, Stream);
LARGEOUT_INSTANTIATE(float)
LARGEOUT_INSTANTIATE(double)
#undef LARGEOUT_INSTANTIATE

}  // namespace cuda
}  // namespace largeout
