// The inputs of LargeoutRowDots and its gradient, for every device.

#ifndef LARGEOUT_CUSTOM_OPS_KERNELS_ROW_DOT_INPUT_H_
#define LARGEOUT_CUSTOM_OPS_KERNELS_ROW_DOT_INPUT_H_

#include <limits>

#include "custom_ops/core/row_dots.h"
#include "custom_ops/kernels/class_matrix_input.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace largeout {

// The class matrix, and the classes that the op is about.
class RowDotInput {
 public:
  // Reads the inputs and checks their shapes, not the ids.
  absl::Status Read(tensorflow::OpKernelContext* ctx) {
    const tensorflow::Tensor *features, *own_ids, *shared_ids;
    TF_RETURN_IF_ERROR(ctx->input("features", &features));
    TF_RETURN_IF_ERROR(ctx->input("ids", &own_ids));
    TF_RETURN_IF_ERROR(ctx->input("shared_ids", &shared_ids));
    TF_RETURN_IF_ERROR(matrix_input_.Read(ctx, *features));
    TF_RETURN_IF_ERROR(CheckShapes(*features, *own_ids, *shared_ids));
    matrix = matrix_input_.matrix();
    own = {own_ids->flat<int64_t>().data(), own_ids->dim_size(0), own_ids->dim_size(1)};
    shared = {shared_ids->flat<int64_t>().data(), shared_ids->NumElements()};
    return absl::OkStatus();
  }

  // Reads what the gradient has besides, once Read is done.
  absl::Status ReadGradients(tensorflow::OpKernelContext* ctx,
                             RowDotsGradients* gradients) const {
    const tensorflow::Tensor *d_logits, *d_rows;
    tensorflow::OpInputList d_biases;
    TF_RETURN_IF_ERROR(ctx->input("d_logits", &d_logits));
    TF_RETURN_IF_ERROR(ctx->input("d_shared_rows", &d_rows));
    TF_RETURN_IF_ERROR(ctx->input_list("d_shared_biases", &d_biases));
    const tensorflow::TensorShape own_shape({own.batch, own.per_row});
    const tensorflow::TensorShape shared_shape({shared.size, matrix.dim});
    if (d_logits->shape() != own_shape || d_rows->shape() != shared_shape) {
      return tensorflow::errors::InvalidArgument(
          "d_logits must be ", own_shape.DebugString(), " and d_shared_rows ",
          shared_shape.DebugString(), ", got ", d_logits->shape().DebugString(), " and ",
          d_rows->shape().DebugString());
    }
    for (const tensorflow::Tensor& biases : d_biases) {
      if (biases.shape() != tensorflow::TensorShape({shared.size})) {
        return tensorflow::errors::InvalidArgument("d_shared_biases must be [", shared.size,
                                                   "], got ", biases.shape().DebugString());
      }
    }
    *gradients = {ctx->input(0).flat<float>().data(), d_logits->flat<float>().data(),
                  d_rows->flat<float>().data(),
                  d_biases.size() == 0 ? nullptr : d_biases[0].flat<float>().data()};
    return absl::OkStatus();
  }

  ClassMatrix matrix;
  OwnClasses own;
  SharedClasses shared;

 private:
  static absl::Status CheckShapes(const tensorflow::Tensor& features,
                                  const tensorflow::Tensor& own_ids,
                                  const tensorflow::Tensor& shared_ids) {
    if (!tensorflow::TensorShapeUtils::IsMatrix(own_ids.shape()) ||
        own_ids.dim_size(0) != features.dim_size(0)) {
      return tensorflow::errors::InvalidArgument(
          "ids must be [batch, num_ids] with batch ", features.dim_size(0),
          " as in the features, got ", own_ids.shape().DebugString());
    }
    if (!tensorflow::TensorShapeUtils::IsVector(shared_ids.shape())) {
      return tensorflow::errors::InvalidArgument("shared_ids must be [num_shared], got ",
                                                 shared_ids.shape().DebugString());
    }
    if (own_ids.NumElements() + shared_ids.NumElements() >
        std::numeric_limits<int32_t>::max()) {
      return tensorflow::errors::InvalidArgument(
          "ids and shared_ids must be fewer than 2^31 together, got ",
          own_ids.shape().DebugString(), " and ", shared_ids.shape().DebugString());
    }
    return absl::OkStatus();
  }

  ClassMatrixInput matrix_input_;
};

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_KERNELS_ROW_DOT_INPUT_H_
