// The gradient of the rows that row_dots.h reads, on the GPU: one row for each distinct class.
//
// The host does not wait for the number of classes: the result has room for as many as there
// can be, and what is left over is rows of 0 with id -1, which row updates and TensorFlow's
// own scatter operations on a GPU pass over.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_ROW_DOTS_GRADIENT_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_ROW_DOTS_GRADIENT_H_

#include <cstdint>

#include "custom_ops/core/rows/row_dots.h"
#include "custom_ops/cuda/stream.h"

namespace largeout {
namespace cuda {

// The rows of the result: an own or shared class has at most one, and so has every class.
inline int64_t RowGradientRows(const OwnClasses& own, const SharedClasses& shared,
                               int64_t num_classes) {
  const int64_t size = own.size() + shared.size;
  return size < num_classes ? size : num_classes;
}

// Where the gradient goes. rows = RowGradientRows.
struct RowGradient {
  int64_t* ids;     // [rows]: the distinct classes, rising, then -1
  float* d_rows;    // [rows, dim]
  float* d_biases;  // [rows], or null: no bias
};

int64_t RowGradientScratchBytes(const OwnClasses& own, const SharedClasses& shared,
                                int64_t num_classes, int64_t dim);

// Sums as core's RowDotsRowGradient: the same result every time. Ids outside
// [0, num_classes) have no gradient; the loss is NaN then, as the logits are.
// Bound by the bytes of d_rows.
Status RowDotsRowGradient(const OwnClasses& own, const SharedClasses& shared,
                          int64_t num_classes, int64_t dim, const RowDotsGradients& gradients,
                          void* scratch, const RowGradient& gradient, Stream stream);

}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_ROW_DOTS_GRADIENT_H_
