// The class embeddings and bias of an op that reads them through their
// variables' handles: in place, under a shared lock, never copied. Or, where they are copies
// already, as tensors.

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
    const tensorflow::Tensor* embeddings;
    TF_RETURN_IF_ERROR(ctx->input("embeddings", &embeddings));
    if (embeddings->dtype() == tensorflow::DT_RESOURCE) {
      TF_RETURN_IF_ERROR(LookUp(ctx, *embeddings, &embeddings_variable_));
      if (biases.size() == 1) TF_RETURN_IF_ERROR(LookUp(ctx, biases[0], &bias_variable_));
      Lock();
      embeddings_ = embeddings_variable_->tensor();
      bias_ = bias_variable_ ? bias_variable_->tensor() : nullptr;
    } else {
      embeddings_ = embeddings;
      bias_ = biases.size() == 1 ? &biases[0] : nullptr;
    }
    TF_RETURN_IF_ERROR(CheckEmbeddings());
    return bias_ != nullptr ? CheckBias() : absl::OkStatus();
  }

  ClassMatrix matrix() const {
    return {embeddings_->flat<float>().data(),
            bias_ != nullptr ? bias_->flat<float>().data() : nullptr, embeddings_->dim_size(0),
            embeddings_->dim_size(1)};
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
    tensorflow::mutex* first = embeddings_variable_->mu();
    tensorflow::mutex* second = bias_variable_ ? bias_variable_->mu() : nullptr;
    if (second != nullptr && second < first) std::swap(first, second);
    first_lock_.emplace(*first);
    if (second != nullptr && second != first) second_lock_.emplace(*second);
  }

  absl::Status CheckEmbeddings() const {
    const tensorflow::Tensor& value = *embeddings_;
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
    const tensorflow::Tensor& value = *embeddings_;
    if (features.dims() != 2 || features.dim_size(1) != value.dim_size(1)) {
      return tensorflow::errors::InvalidArgument("features must be [batch, dim] with dim ",
                                                 value.dim_size(1), " as in the embeddings ",
                                                 value.shape().DebugString(), ", got ",
                                                 features.shape().DebugString());
    }
    return absl::OkStatus();
  }

  absl::Status CheckBias() const {
    const tensorflow::Tensor& value = *bias_;
    const int64_t num_classes = embeddings_->dim_size(0);
    if (value.dtype() != tensorflow::DT_FLOAT || value.dims() != 1 ||
        value.dim_size(0) != num_classes) {
      return tensorflow::errors::InvalidArgument(
          "bias must be an initialised float variable [", num_classes, "], got ",
          tensorflow::DataTypeString(value.dtype()), " ", value.shape().DebugString());
    }
    return absl::OkStatus();
  }

  const tensorflow::Tensor *embeddings_, *bias_;
  Variable embeddings_variable_, bias_variable_;
  std::optional<tensorflow::tf_shared_lock> first_lock_, second_lock_;
};

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_KERNELS_CLASS_MATRIX_INPUT_H_
