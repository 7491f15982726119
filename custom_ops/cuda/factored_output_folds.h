// Folds of factored output layers on the GPU. Rows of V take them as in
// core/factored_output/factored_output_folds.h, up to rounding.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_FACTORED_OUTPUT_FOLDS_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_FACTORED_OUTPUT_FOLDS_H_

#include <cstdint>

#include "custom_ops/core/factored_output/factored_output.h"
#include "custom_ops/cuda/stream.h"

namespace largeout {
namespace cuda {

// rows [num_ids, width] = the rows of V of these ids, after all folds; zeros for invalid ids.
template <class Number>
Status CopyRows(const FactoredState<Number>& state, const int64_t* ids, int64_t num_ids,
                double* rows, Stream stream);

// Applies all folds to all rows of V, or of a copy of V.
template <class Number>
Status TakeAllFolds(const FactoredFolds& folds, const uint32_t* seen, int64_t num_classes,
                    Number* vectors, Stream stream);

// Clears the log. Call it after TakeAllFolds.
template <class Number>
Status ForgetFolds(const FactoredState<Number>& state, Stream stream);

}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_FACTORED_OUTPUT_FOLDS_H_
