// Checks of the inputs of ops. Their errors say what was expected and what was received.

#ifndef LARGEOUT_CUSTOM_OPS_KERNELS_CHECKS_H_
#define LARGEOUT_CUSTOM_OPS_KERNELS_CHECKS_H_

#include <string>

#include "tensorflow/core/framework/op_kernel.h"

namespace largeout {

// The error of an input with a wrong shape.
template <class... Expected>
absl::Status WrongShape(const tensorflow::Tensor& input, const char* name,
                        const Expected&... expected) {
  return tensorflow::errors::InvalidArgument(name, " must be ", expected..., ", got ",
                                             input.shape().DebugString());
}

inline absl::Status CheckScalar(const tensorflow::Tensor& input, const char* name) {
  if (input.dims() == 0) return absl::OkStatus();
  return WrongShape(input, name, "a scalar");
}

// The input must be a matrix with `batch` rows, like `other`.
inline absl::Status CheckBatchMatrix(const tensorflow::Tensor& input, const char* name,
                                     int64_t batch, const char* other) {
  if (input.dims() == 2 && input.dim_size(0) == batch) return absl::OkStatus();
  return WrongShape(input, name, "[batch, num_", name, "] with batch ", batch, " as in the ",
                    other);
}

// The input must be [batch], one number per example of `other`.
inline absl::Status CheckBatchVector(const tensorflow::Tensor& input, const char* name,
                                     int64_t batch, const char* other) {
  if (input.dims() == 1 && input.dim_size(0) == batch) return absl::OkStatus();
  return WrongShape(input, name, "[batch] with batch ", batch, " as in the ", other);
}

// The input must be [batch, dim].
inline absl::Status CheckWidth(const tensorflow::Tensor& input, const char* name, int64_t dim,
                               const char* other) {
  if (input.dims() == 2 && input.dim_size(1) == dim) return absl::OkStatus();
  return WrongShape(input, name, "[batch, dim] with dim ", dim, " as in the ", other);
}

inline absl::Status CheckShape(const tensorflow::Tensor& input, const char* name,
                               const tensorflow::TensorShape& shape) {
  if (input.shape() == shape) return absl::OkStatus();
  return WrongShape(input, name, shape.DebugString());
}

inline absl::Status CheckSameShape(const tensorflow::Tensor& input, const char* name,
                                   const tensorflow::Tensor& other, const char* other_name) {
  if (input.shape() == other.shape()) return absl::OkStatus();
  return WrongShape(input, name, "of the shape of ", other_name, ", ",
                    other.shape().DebugString());
}

// The value of a variable must have the dtype and the shape.
inline absl::Status CheckVariable(const tensorflow::Tensor& value, const char* name,
                                  tensorflow::DataType dtype,
                                  const tensorflow::TensorShape& shape) {
  if (value.IsInitialized() && value.dtype() == dtype && value.shape() == shape) {
    return absl::OkStatus();
  }
  return tensorflow::errors::InvalidArgument(
      name, " must be ", tensorflow::DataTypeString(dtype), " of shape ", shape.DebugString(),
      ", got ", tensorflow::DataTypeString(value.dtype()), " of shape ",
      value.shape().DebugString());
}

// The ids must be in [lowest, num_classes); `lowest` is 0, or -1 if padding is allowed. They
// are in host memory. `width`: of their matrix, or 1 if they are a vector, for the error
// message.
inline absl::Status CheckClassIds(const int64_t* ids, int64_t size, int64_t width, int lowest,
                                  int64_t num_classes, const char* name) {
  for (int64_t i = 0; i < size; ++i) {
    if (lowest <= ids[i] && ids[i] < num_classes) continue;
    const std::string place = width > 1
                                  ? absl::StrCat("example ", i / width, ", column ", i % width)
                                  : absl::StrCat("position ", i);
    return tensorflow::errors::InvalidArgument(name, " must be class ids in [0, ", num_classes,
                                               ")", lowest < 0 ? ", or -1 for padding" : "",
                                               ", got ", ids[i], " at ", place);
  }
  return absl::OkStatus();
}

// The same for a tensor, [n] or a matrix.
inline absl::Status CheckClassIds(const tensorflow::Tensor& ids, int lowest,
                                  int64_t num_classes, const char* name) {
  const int64_t width = ids.dims() == 2 ? ids.dim_size(1) : 1;
  return CheckClassIds(ids.flat<int64_t>().data(), ids.NumElements(), width, lowest,
                       num_classes, name);
}

// The seed, an int64 [2] in the device's memory.
inline absl::Status ReadSeed(const tensorflow::Tensor& input, const int64_t** seed) {
  *seed = input.flat<int64_t>().data();
  return CheckShape(input, "seed", tensorflow::TensorShape({2}));
}

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_KERNELS_CHECKS_H_
