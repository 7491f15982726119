// The class embeddings and bias of an op that reads them through their
// variables' handles: in place, under a shared lock, never copied.

#ifndef LARGEOUT_CUSTOM_OPS_KERNELS_CLASS_MATRIX_INPUT_H_
#define LARGEOUT_CUSTOM_OPS_KERNELS_CLASS_MATRIX_INPUT_H_

#include <limits>
#include <optional>

#include "custom_ops/core/class_scan.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/resource_var.h"

namespace largeout {

// Holds the locks as long as it lives.
class ClassMatrixInput {
 public:
  // Reads input `embeddings` and the inputs of list `bias` (none or one), and
  // checks them against features [batch, dim].
  absl::Status Read(tensorflow::OpKernelContext* ctx, const tensorflow::Tensor& features) {
    TF_RETURN_IF_ERROR(Read(ctx));
    return CheckFeatures(features);
  }

  // The same without features.
  absl::Status Read(tensorflow::OpKernelContext* ctx) {
    tensorflow::OpInputList biases;
    TF_RETURN_IF_ERROR(ctx->input_list("bias", &biases));
    if (biases.size() > 1) {
      return tensorflow::errors::InvalidArgument("bias must be one variable or none, got ",
                                                 biases.size());
    }
    const tensorflow::Tensor* handle;
    TF_RETURN_IF_ERROR(ctx->input("embeddings", &handle));
    TF_RETURN_IF_ERROR(LookUp(ctx, *handle, &embeddings_));
    if (biases.size() == 1) TF_RETURN_IF_ERROR(LookUp(ctx, biases[0], &bias_));
    Lock();
    TF_RETURN_IF_ERROR(CheckEmbeddings());
    return bias_ ? CheckBias() : absl::OkStatus();
  }

  ClassMatrix matrix() const {
    const tensorflow::Tensor& embeddings = *embeddings_->tensor();
    return {embeddings.flat<float>().data(),
            bias_ ? bias_->tensor()->flat<float>().data() : nullptr, embeddings.dim_size(0),
            embeddings.dim_size(1)};
  }

 private:
  using Variable = tensorflow::core::RefCountPtr<tensorflow::Var>;

  static absl::Status LookUp(tensorflow::OpKernelContext* ctx, const tensorflow::Tensor& handle,
                             Variable* variable) {
    return tensorflow::LookupResource(ctx, handle.scalar<tensorflow::ResourceHandle>()(),
                                      variable);
  }

  // In order of address, as everywhere in TensorFlow.
  void Lock() {
    tensorflow::mutex* first = embeddings_->mu();
    tensorflow::mutex* second = bias_ ? bias_->mu() : nullptr;
    if (second != nullptr && second < first) std::swap(first, second);
    first_lock_.emplace(*first);
    if (second != nullptr && second != first) second_lock_.emplace(*second);
  }

  absl::Status CheckEmbeddings() const {
    const tensorflow::Tensor& value = *embeddings_->tensor();
    if (value.dtype() != tensorflow::DT_FLOAT || value.dims() != 2 || value.dim_size(0) < 1 ||
        value.dim_size(0) >= std::numeric_limits<int32_t>::max()) {
      return tensorflow::errors::InvalidArgument(
          "embeddings must be an initialised float variable [num_classes, dim] with 1 to "
          "2^31 - 2 classes, got ",
          tensorflow::DataTypeString(value.dtype()), " ", value.shape().DebugString());
    }
    return absl::OkStatus();
  }

  absl::Status CheckFeatures(const tensorflow::Tensor& features) const {
    const tensorflow::Tensor& value = *embeddings_->tensor();
    if (features.dims() != 2 || features.dim_size(1) != value.dim_size(1)) {
      return tensorflow::errors::InvalidArgument("features must be [batch, dim] with dim ",
                                                 value.dim_size(1), " as in the embeddings ",
                                                 value.shape().DebugString(), ", got ",
                                                 features.shape().DebugString());
    }
    return absl::OkStatus();
  }

  absl::Status CheckBias() const {
    const tensorflow::Tensor& value = *bias_->tensor();
    const int64_t num_classes = embeddings_->tensor()->dim_size(0);
    if (value.dtype() != tensorflow::DT_FLOAT || value.dims() != 1 ||
        value.dim_size(0) != num_classes) {
      return tensorflow::errors::InvalidArgument(
          "bias must be an initialised float variable [", num_classes, "], got ",
          tensorflow::DataTypeString(value.dtype()), " ", value.shape().DebugString());
    }
    return absl::OkStatus();
  }

  Variable embeddings_, bias_;
  std::optional<tensorflow::tf_shared_lock> first_lock_, second_lock_;
};

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_KERNELS_CLASS_MATRIX_INPUT_H_
