// The ops on the logits of a few classes per example, for every device.
//
// A Device has the functions of core/rows/row_dots.h as static functions that take the context
// first and return a status: RowDots, GatherRows, FeatureGradient, and RowGradient, which
// allocates its outputs by AllocateRowGradient. It also has CheckIds, which checks the ids as
// far as it can, and kReadsBfloat16: whether the embeddings may be bfloat16. If so, its
// functions but RowGradient use RowDotInput::reads().

#ifndef LARGEOUT_CUSTOM_OPS_KERNELS_ROW_DOT_OPS_H_
#define LARGEOUT_CUSTOM_OPS_KERNELS_ROW_DOT_OPS_H_

#include <limits>
#include <memory>

#include "custom_ops/core/rows/row_dots.h"
#include "custom_ops/core/rows/widened_classes.h"
#include "custom_ops/kernels/class_matrix_input.h"
#include "custom_ops/kernels/intra_op_parallel.h"
#include "custom_ops/kernels/largeout_op.h"

namespace largeout {

// The class matrix, and the classes that an op reads. Holds the locks during its lifetime.
class RowDotInput {
 public:
  // Reads the inputs and checks their shapes, but not the ids.
  absl::Status Read(tensorflow::OpKernelContext* ctx, bool accepts_bfloat16) {
    const tensorflow::Tensor *own_ids, *shared_ids;
    TF_RETURN_IF_ERROR(ctx->input("features", &features_));
    TF_RETURN_IF_ERROR(ctx->input("ids", &own_ids));
    TF_RETURN_IF_ERROR(ctx->input("shared_ids", &shared_ids));
    TF_RETURN_IF_ERROR(matrix_input_.Read(ctx, *features_, accepts_bfloat16));
    TF_RETURN_IF_ERROR(CheckBatchMatrix(*own_ids, "ids", features_->dim_size(0), "features"));
    if (shared_ids->dims() != 1) return WrongShape(*shared_ids, "shared_ids", "[num_shared]");
    if (own_ids->NumElements() + shared_ids->NumElements() >
        std::numeric_limits<int32_t>::max()) {
      return tensorflow::errors::InvalidArgument(
          "ids and shared_ids must have fewer than 2^31 elements together, got ",
          own_ids->shape().DebugString(), " and ", shared_ids->shape().DebugString());
    }
    matrix = matrix_input_.matrix();
    own = {own_ids->flat<int64_t>().data(), own_ids->dim_size(0), own_ids->dim_size(1)};
    shared = {shared_ids->flat<int64_t>().data(), shared_ids->NumElements()};
    return absl::OkStatus();
  }

  // Reads the additional inputs of the gradient. Call it after Read.
  absl::Status ReadGradients(tensorflow::OpKernelContext* ctx,
                             RowDotsGradients* gradients) const {
    const tensorflow::Tensor *d_logits, *d_rows;
    tensorflow::OpInputList d_biases;
    TF_RETURN_IF_ERROR(ctx->input("d_logits", &d_logits));
    TF_RETURN_IF_ERROR(ctx->input("d_shared_rows", &d_rows));
    TF_RETURN_IF_ERROR(ctx->input_list("d_shared_biases", &d_biases));
    TF_RETURN_IF_ERROR(
        CheckShape(*d_logits, "d_logits", tensorflow::TensorShape({own.batch, own.per_row})));
    TF_RETURN_IF_ERROR(CheckShape(*d_rows, "d_shared_rows",
                                  tensorflow::TensorShape({shared.size, matrix.dim})));
    for (const tensorflow::Tensor& biases : d_biases) {
      TF_RETURN_IF_ERROR(
          CheckShape(biases, "d_shared_biases", tensorflow::TensorShape({shared.size})));
    }
    *gradients = {features(), d_logits->flat<float>().data(), d_rows->flat<float>().data(),
                  d_biases.size() == 0 ? nullptr : d_biases[0].flat<float>().data()};
    return absl::OkStatus();
  }

  // Prepares reads(). Call it when the ids are checked.
  void WidenBfloat16(tensorflow::OpKernelContext* ctx) {
    if (matrix.bfloat16_rows == nullptr) return;
    widened_ = std::make_unique<WidenedClasses>(matrix, own, shared, IntraOpParallel(ctx));
  }

  const float* features() const { return features_->flat<float>().data(); }

  ClassMatrix matrix;
  OwnClasses own;
  SharedClasses shared;

  // The same classes in float32.
  struct Reads {
    ClassMatrix matrix;
    OwnClasses own;
    SharedClasses shared;
  };
  Reads reads() const {
    if (widened_ == nullptr) return {matrix, own, shared};
    return {widened_->matrix(), widened_->own(), widened_->shared()};
  }

 private:
  const tensorflow::Tensor* features_ = nullptr;
  ClassMatrixInput matrix_input_;
  std::unique_ptr<WidenedClasses> widened_;
};

inline float* NumbersOrNull(tensorflow::Tensor* tensor) {
  return tensor == nullptr ? nullptr : tensor->flat<float>().data();
}

template <class Device>
class RowDotsOp : public LargeoutOp {
 public:
  using LargeoutOp::LargeoutOp;

  void Run(tensorflow::OpKernelContext* ctx) override {
    RowDotInput in;
    OP_REQUIRES_OK(ctx, in.Read(ctx, Device::kReadsBfloat16));
    OP_REQUIRES_OK(ctx, Device::CheckIds(in));
    in.WidenBfloat16(ctx);
    tensorflow::Tensor *logits, *rows, *biases = nullptr;
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 0, {in.own.batch, in.own.per_row}, &logits));
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 1, {in.shared.size, in.matrix.dim}, &rows));
    if (in.matrix.bias != nullptr) {
      OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 2, {in.shared.size}, &biases));
    }
    OP_REQUIRES_OK(ctx, Device::RowDots(ctx, in, logits->flat<float>().data()));
    OP_REQUIRES_OK(
        ctx, Device::GatherRows(ctx, in, rows->flat<float>().data(), NumbersOrNull(biases)));
  }
};

// The gradients of the rows that have one. bias is null if there is no bias.
struct RowGradient {
  int64_t* ids;
  float* rows;
  float* bias;
};

inline absl::Status AllocateRowGradient(tensorflow::OpKernelContext* ctx, int64_t num_rows,
                                        int64_t dim, RowGradient* gradient) {
  tensorflow::Tensor *ids, *rows, *bias = nullptr;
  tensorflow::OpOutputList biases;
  TF_RETURN_IF_ERROR(AllocateOutput(ctx, "row_ids", {num_rows}, &ids));
  TF_RETURN_IF_ERROR(AllocateOutput(ctx, "d_rows", {num_rows, dim}, &rows));
  TF_RETURN_IF_ERROR(ctx->output_list("d_biases", &biases));
  if (biases.size() > 0) TF_RETURN_IF_ERROR(biases.allocate(0, {num_rows}, &bias));
  *gradient = {ids->flat<int64_t>().data(), rows->flat<float>().data(), NumbersOrNull(bias)};
  return absl::OkStatus();
}

template <class Device>
class RowDotsGradOp : public LargeoutOp {
 public:
  using LargeoutOp::LargeoutOp;

  void Run(tensorflow::OpKernelContext* ctx) override {
    RowDotInput in;
    OP_REQUIRES_OK(ctx, in.Read(ctx, Device::kReadsBfloat16));
    OP_REQUIRES_OK(ctx, Device::CheckIds(in));
    in.WidenBfloat16(ctx);
    RowDotsGradients gradients{};
    OP_REQUIRES_OK(ctx, in.ReadGradients(ctx, &gradients));
    tensorflow::Tensor *d_features, *shape;
    OP_REQUIRES_OK(ctx, ctx->allocate_output("d_features", ctx->input(0).shape(), &d_features));
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, "embeddings_shape", {2}, &shape));
    shape->flat<int64_t>()(0) = in.matrix.num_classes;
    shape->flat<int64_t>()(1) = in.matrix.dim;
    OP_REQUIRES_OK(ctx, Device::FeatureGradient(ctx, in, gradients.d_logits,
                                                d_features->flat<float>().data()));
    OP_REQUIRES_OK(ctx, Device::RowGradient(ctx, in, gradients));
  }
};

// Registers the ops with a Device for the TensorFlow device `name`. Handles and shapes are in
// host memory.
#define LARGEOUT_REGISTER_ROW_DOT_OPS(name, Functions)                                  \
  REGISTER_KERNEL_BUILDER(                                                              \
      Name("LargeoutRowDots").Device(name).HostMemory("embeddings").HostMemory("bias"), \
      RowDotsOp<Functions>);                                                            \
  REGISTER_KERNEL_BUILDER(Name("LargeoutRowDotsGrad")                                   \
                              .Device(name)                                             \
                              .HostMemory("embeddings")                                 \
                              .HostMemory("bias")                                       \
                              .HostMemory("embeddings_shape"),                          \
                          RowDotsGradOp<Functions>)

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_KERNELS_ROW_DOT_OPS_H_
