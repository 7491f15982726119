// The gradient of the rows that row_dots.h reads, on the GPU: one row per distinct class.
//
// The host does not wait for the number of distinct classes. The result has room for the
// largest possible number. Its remaining rows are 0 with id -1, which row updates and
// TensorFlow's scatter operations on a GPU ignore.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_ROW_DOTS_GRADIENT_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_ROW_DOTS_GRADIENT_H_

#include <cstdint>

#include "custom_ops/core/rows/row_dots.h"
#include "custom_ops/cuda/stream.h"

namespace largeout {
namespace cuda {

// The number of rows of the result: at most one per own or shared class, and at most
// num_classes.
inline int64_t RowGradientRows(const OwnClasses& own, const SharedClasses& shared,
                               int64_t num_classes) {
  const int64_t size = own.size() + shared.size;
  return size < num_classes ? size : num_classes;
}

// The output. rows = RowGradientRows.
struct RowGradient {
  int64_t* ids;     // [rows]: the distinct classes in increasing order, then -1
  float* d_rows;    // [rows, dim]
  float* d_biases;  // [rows], or null if there is no bias
};

int64_t RowGradientScratchBytes(const OwnClasses& own, const SharedClasses& shared,
                                int64_t num_classes, int64_t dim);

// Sums as core's RowDotsRowGradient. The bits are deterministic. Ids outside [0, num_classes)
// have no gradient; the logits, and so the loss, are NaN for them. Bound by the bytes of
// d_rows.
Status RowDotsRowGradient(const OwnClasses& own, const SharedClasses& shared,
                          int64_t num_classes, int64_t dim, const RowDotsGradients& gradients,
                          void* scratch, const RowGradient& gradient, Stream stream);

}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_ROW_DOTS_GRADIENT_H_
