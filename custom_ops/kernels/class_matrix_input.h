// The class embeddings and the bias of an op that reads them in place through their variables'
// handles, under a shared lock and without a copy. If they are copies already, as tensors.
// The embeddings are float32. An op may also accept bfloat16.

#ifndef LARGEOUT_CUSTOM_OPS_KERNELS_CLASS_MATRIX_INPUT_H_
#define LARGEOUT_CUSTOM_OPS_KERNELS_CLASS_MATRIX_INPUT_H_

#include <cstdint>
#include <limits>

#include "custom_ops/core/class_scan/class_scan_types.h"
#include "custom_ops/kernels/checks.h"
#include "custom_ops/kernels/variable_locks.h"

namespace largeout {

// Holds the locks during its lifetime.
class ClassMatrixInput {
 public:
  // Reads input `embeddings` and the inputs of list `bias` (none or one), and checks them
  // against features [batch, dim].
  absl::Status Read(tensorflow::OpKernelContext* ctx, const tensorflow::Tensor& features,
                    bool accepts_bfloat16 = false) {
    TF_RETURN_IF_ERROR(Read(ctx, accepts_bfloat16));
    return CheckWidth(features, "features", embeddings_->dim_size(1), "embeddings");
  }

  // The same without features.
  absl::Status Read(tensorflow::OpKernelContext* ctx, bool accepts_bfloat16 = false) {
    tensorflow::OpInputList biases;
    TF_RETURN_IF_ERROR(ctx->input_list("bias", &biases));
    if (biases.size() > 1) {
      return tensorflow::errors::InvalidArgument("bias must be one variable or none, got ",
                                                 biases.size());
    }
    const bool has_bias = biases.size() == 1;
    TF_RETURN_IF_ERROR(ctx->input("embeddings", &embeddings_));
    if (has_bias) bias_ = &biases[0];
    if (embeddings_->dtype() == tensorflow::DT_RESOURCE) {
      TF_RETURN_IF_ERROR(variables_.Find(ctx, *embeddings_));
      if (has_bias) TF_RETURN_IF_ERROR(variables_.Find(ctx, *bias_));
      variables_.LockShared();
      embeddings_ = variables_.tensor(0);
      if (has_bias) bias_ = variables_.tensor(1);
    }
    TF_RETURN_IF_ERROR(CheckEmbeddings(*embeddings_, accepts_bfloat16));
    if (!has_bias) return absl::OkStatus();
    return CheckVariable(*bias_, "bias", tensorflow::DT_FLOAT, {embeddings_->dim_size(0)});
  }

  // Reads only input `embeddings`, a handle.
  absl::Status ReadTable(tensorflow::OpKernelContext* ctx) {
    TF_RETURN_IF_ERROR(variables_.Find(ctx, "embeddings"));
    variables_.LockShared();
    embeddings_ = variables_.tensor(0);
    return CheckEmbeddings(*embeddings_, false);
  }

  // Either its `embeddings` or its `bfloat16_rows` are null. Both are if the width is 0.
  ClassMatrix matrix() const {
    ClassMatrix matrix{nullptr, bias_ != nullptr ? bias_->flat<float>().data() : nullptr,
                       embeddings_->dim_size(0), embeddings_->dim_size(1)};
    if (embeddings_->dtype() == tensorflow::DT_FLOAT) {
      matrix.embeddings = embeddings_->flat<float>().data();
    } else {
      matrix.bfloat16_rows =
          reinterpret_cast<const uint16_t*>(embeddings_->flat<tensorflow::bfloat16>().data());
    }
    return matrix;
  }

 private:
  static absl::Status CheckEmbeddings(const tensorflow::Tensor& value, bool accepts_bfloat16) {
    const bool has_dtype = value.dtype() == tensorflow::DT_FLOAT ||
                           (accepts_bfloat16 && value.dtype() == tensorflow::DT_BFLOAT16);
    if (has_dtype && value.dims() == 2 && value.dim_size(0) >= 1 &&
        value.dim_size(0) < std::numeric_limits<int32_t>::max()) {
      return absl::OkStatus();
    }
    return tensorflow::errors::InvalidArgument(
        "embeddings must be an initialised float variable [num_classes, dim] with 1 to "
        "2^31 - 2 classes, got ",
        tensorflow::DataTypeString(value.dtype()), " ", value.shape().DebugString());
  }

  const tensorflow::Tensor *embeddings_ = nullptr, *bias_ = nullptr;
  LockedVariables variables_;
};

// features: [batch, dim].
inline Features FeaturesOf(const tensorflow::Tensor& features) {
  return {features.flat<float>().data(), features.dim_size(0)};
}

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_KERNELS_CLASS_MATRIX_INPUT_H_
