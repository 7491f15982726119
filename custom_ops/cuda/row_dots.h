// Logits of classes of each row's own, rows of shared classes, and the gradient of the
// features, on the GPU: what core/rows/row_dots.h does, for the same types.
//
// The GPU looks at the ids itself. -1 stands for no class, as on the CPU. Any other id
// outside [0, num_classes) gives NaN, and reads nothing outside the matrix.
//
// Bound by bytes: each reads the rows that its ids name once, all else is small.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_ROW_DOTS_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_ROW_DOTS_H_

#include "custom_ops/core/rows/row_dots.h"
#include "custom_ops/cuda/stream.h"

namespace largeout {
namespace cuda {

// Everywhere: features [batch, dim], all pointers to device memory.

// logits [batch, per_row]: the lowest float where there is no class.
Status RowDots(const ClassMatrix& matrix, const float* features, const OwnClasses& own,
               float* logits, Stream stream);

// rows [shared.size, dim] and, if the matrix has them, biases [shared.size]. Here -1 is
// outside too: shared classes have no padding.
Status GatherRows(const ClassMatrix& matrix, const SharedClasses& shared, float* rows,
                  float* biases, Stream stream);

// d_features[b] = sum over i of d_logits[b, i] * w_id(b, i).
Status RowDotsFeatureGradient(const ClassMatrix& matrix, const OwnClasses& own,
                              const float* d_logits, float* d_features, Stream stream);

}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_ROW_DOTS_H_
