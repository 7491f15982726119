// Logits of classes that each example chooses, rows of shared classes, and the gradient of the
// features, on the GPU: the functions of core/rows/row_dots.h, with the same types.
//
// The GPU checks the ids. -1 is padding, as on the CPU. Any other id outside [0, num_classes)
// gives NaN, and no memory outside the matrix is read.
//
// Bound by memory: each function reads the rows of its ids once; everything else is small.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_ROW_DOTS_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_ROW_DOTS_H_

#include "custom_ops/core/rows/row_dots.h"
#include "custom_ops/cuda/stream.h"

namespace largeout {
namespace cuda {

// In all functions, features are [batch, dim], and all pointers are to device memory.

// logits [batch, per_row]: the lowest float where the id is -1.
Status RowDots(const ClassMatrix& matrix, const float* features, const OwnClasses& own,
               float* logits, Stream stream);

// rows [shared.size, dim] and, if the matrix has them, biases [shared.size]. Shared classes
// have no padding, so -1 also counts as out of range.
Status GatherRows(const ClassMatrix& matrix, const SharedClasses& shared, float* rows,
                  float* biases, Stream stream);

// d_features[b] = sum over i of d_logits[b, i] * w_id(b, i).
Status RowDotsFeatureGradient(const ClassMatrix& matrix, const OwnClasses& own,
                              const float* d_logits, float* d_features, Stream stream);

}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_ROW_DOTS_H_
