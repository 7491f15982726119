// The ops on the logits of a few classes per example.

#include <algorithm>
#include <limits>
#include <memory>

#include "custom_ops/core/rows/row_dots.h"
#include "custom_ops/core/rows/widened_classes.h"
#include "custom_ops/kernels/class_matrix_input.h"
#include "custom_ops/kernels/intra_op_parallel.h"
#include "custom_ops/kernels/largeout_op.h"

namespace largeout {
namespace {

using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::errors::InvalidArgument;

// The class matrix, and the classes that an op reads. Holds the locks during its lifetime.
class RowDotInput {
 public:
  absl::Status Read(OpKernelContext* ctx) {
    const Tensor *own_ids, *shared_ids;
    TF_RETURN_IF_ERROR(ctx->input("features", &features_));
    TF_RETURN_IF_ERROR(ctx->input("ids", &own_ids));
    TF_RETURN_IF_ERROR(ctx->input("shared_ids", &shared_ids));
    TF_RETURN_IF_ERROR(matrix_input_.Read(ctx, *features_, true));
    TF_RETURN_IF_ERROR(CheckBatchMatrix(*own_ids, "ids", features_->dim_size(0), "features"));
    if (shared_ids->dims() != 1) return WrongShape(*shared_ids, "shared_ids", "[num_shared]");
    if (own_ids->NumElements() + shared_ids->NumElements() >
        std::numeric_limits<int32_t>::max()) {
      return InvalidArgument(
          "ids and shared_ids must have fewer than 2^31 elements together, got ",
          own_ids->shape().DebugString(), " and ", shared_ids->shape().DebugString());
    }
    matrix = matrix_input_.matrix();
    own = {own_ids->flat<int64_t>().data(), own_ids->dim_size(0), own_ids->dim_size(1)};
    shared = {shared_ids->flat<int64_t>().data(), shared_ids->NumElements()};
    TF_RETURN_IF_ERROR(CheckClassIds(*own_ids, -1, matrix.num_classes, "ids"));
    TF_RETURN_IF_ERROR(CheckClassIds(*shared_ids, 0, matrix.num_classes, "shared_ids"));
    if (matrix.bfloat16_rows != nullptr) {
      widened_ = std::make_unique<WidenedClasses>(matrix, own, shared, IntraOpParallel(ctx));
    }
    return absl::OkStatus();
  }

  // Reads the additional inputs of the gradient. Call it after Read.
  absl::Status ReadGradients(OpKernelContext* ctx, RowDotsGradients* gradients) const {
    const Tensor *d_logits, *d_rows;
    tensorflow::OpInputList d_biases;
    TF_RETURN_IF_ERROR(ctx->input("d_logits", &d_logits));
    TF_RETURN_IF_ERROR(ctx->input("d_shared_rows", &d_rows));
    TF_RETURN_IF_ERROR(ctx->input_list("d_shared_biases", &d_biases));
    TF_RETURN_IF_ERROR(
        CheckShape(*d_logits, "d_logits", tensorflow::TensorShape({own.batch, own.per_row})));
    TF_RETURN_IF_ERROR(CheckShape(*d_rows, "d_shared_rows",
                                  tensorflow::TensorShape({shared.size, matrix.dim})));
    for (const Tensor& biases : d_biases) {
      TF_RETURN_IF_ERROR(
          CheckShape(biases, "d_shared_biases", tensorflow::TensorShape({shared.size})));
    }
    *gradients = {features(), d_logits->flat<float>().data(), d_rows->flat<float>().data(),
                  d_biases.size() == 0 ? nullptr : d_biases[0].flat<float>().data()};
    return absl::OkStatus();
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
  const Tensor* features_ = nullptr;
  ClassMatrixInput matrix_input_;
  std::unique_ptr<WidenedClasses> widened_;
};

float* NumbersOrNull(Tensor* tensor) {
  return tensor == nullptr ? nullptr : tensor->flat<float>().data();
}

class RowDotsOp : public LargeoutOp {
 public:
  using LargeoutOp::LargeoutOp;

  void Run(OpKernelContext* ctx) override {
    RowDotInput in;
    OP_REQUIRES_OK(ctx, in.Read(ctx));
    Tensor *logits, *rows, *biases = nullptr;
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 0, {in.own.batch, in.own.per_row}, &logits));
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 1, {in.shared.size, in.matrix.dim}, &rows));
    if (in.matrix.bias != nullptr) {
      OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 2, {in.shared.size}, &biases));
    }
    const auto classes = in.reads();
    const ParallelFor parallel = IntraOpParallel(ctx);
    RowDots(classes.matrix, in.features(), classes.own, parallel, logits->flat<float>().data());
    GatherRows(classes.matrix, classes.shared, parallel, rows->flat<float>().data(),
               NumbersOrNull(biases));
  }
};

class RowDotsGradOp : public LargeoutOp {
 public:
  using LargeoutOp::LargeoutOp;

  void Run(OpKernelContext* ctx) override {
    RowDotInput in;
    RowDotsGradients gradients{};
    OP_REQUIRES_OK(ctx, in.Read(ctx));
    OP_REQUIRES_OK(ctx, in.ReadGradients(ctx, &gradients));
    Tensor *d_features, *shape;
    OP_REQUIRES_OK(ctx, ctx->allocate_output("d_features", ctx->input(0).shape(), &d_features));
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, "embeddings_shape", {2}, &shape));
    shape->flat<int64_t>()(0) = in.matrix.num_classes;
    shape->flat<int64_t>()(1) = in.matrix.dim;
    const auto classes = in.reads();
    RowDotsFeatureGradient(classes.matrix, classes.own, gradients.d_logits,
                           IntraOpParallel(ctx), d_features->flat<float>().data());
    OP_REQUIRES_OK(ctx, RowGradient(ctx, in, gradients));
  }

 private:
  // Writes the gradients of the distinct classes.
  static absl::Status RowGradient(OpKernelContext* ctx, const RowDotInput& in,
                                  const RowDotsGradients& gradients) {
    const ParallelFor parallel = IntraOpParallel(ctx);
    const MergedRows merged = MergeClasses(in.own, in.shared, parallel);
    const int64_t num_rows = merged.size(), dim = in.matrix.dim;
    Tensor *ids, *rows, *bias = nullptr;
    tensorflow::OpOutputList biases;
    TF_RETURN_IF_ERROR(AllocateOutput(ctx, "row_ids", {num_rows}, &ids));
    TF_RETURN_IF_ERROR(AllocateOutput(ctx, "d_rows", {num_rows, dim}, &rows));
    TF_RETURN_IF_ERROR(ctx->output_list("d_biases", &biases));
    if (biases.size() > 0) TF_RETURN_IF_ERROR(biases.allocate(0, {num_rows}, &bias));
    std::copy(merged.ids.begin(), merged.ids.end(), ids->flat<int64_t>().data());
    RowDotsRowGradient(merged, gradients, in.own, dim, parallel, rows->flat<float>().data(),
                       NumbersOrNull(bias));
    return absl::OkStatus();
  }
};

REGISTER_KERNEL_BUILDER(Name("LargeoutRowDots").Device(tensorflow::DEVICE_CPU), RowDotsOp);
REGISTER_KERNEL_BUILDER(Name("LargeoutRowDotsGrad").Device(tensorflow::DEVICE_CPU),
                        RowDotsGradOp);

}  // namespace
}  // namespace largeout
