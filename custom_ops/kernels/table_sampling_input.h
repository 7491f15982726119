// The shapes of the tables that samplers draw from, checked alike on both devices.

#ifndef LARGEOUT_CUSTOM_OPS_KERNELS_TABLE_SAMPLING_INPUT_H_
#define LARGEOUT_CUSTOM_OPS_KERNELS_TABLE_SAMPLING_INPUT_H_

#include "tensorflow/core/framework/op_kernel.h"

namespace largeout {

inline tensorflow::Status CheckAliasTable(const tensorflow::Tensor& slots,
                                          const tensorflow::Tensor& probability) {
  const int64_t num_classes = probability.NumElements();
  if (slots.dims() == 2 && slots.dim_size(0) == num_classes && slots.dim_size(1) == 2 &&
      probability.dims() == 1 && num_classes > 0) {
    return tensorflow::OkStatus();
  }
  return tensorflow::errors::InvalidArgument(
      "slots and probability must have shapes [num_classes, 2] and [num_classes], received ",
      slots.shape().DebugString(), " and ", probability.shape().DebugString());
}

inline tensorflow::Status CheckPivotalTable(const tensorflow::Tensor& cumulative,
                                            const tensorflow::Tensor& index) {
  if (cumulative.dims() == 1 && cumulative.NumElements() >= 2 && index.dims() == 1 &&
      index.NumElements() >= 2) {
    return tensorflow::OkStatus();
  }
  return tensorflow::errors::InvalidArgument(
      "cumulative and index must be vectors of at least 2 numbers, received ",
      cumulative.shape().DebugString(), " and ", index.shape().DebugString());
}

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_KERNELS_TABLE_SAMPLING_INPUT_H_
