#include "custom_ops/core/row_dots.h"
#include "custom_ops/kernels/class_matrix_input.h"
#include "custom_ops/kernels/intra_op_parallel.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace largeout {
namespace {

using tensorflow::OpInputList;
using tensorflow::OpKernel;
using tensorflow::OpKernelContext;
using tensorflow::OpOutputList;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::TensorShapeUtils;
using tensorflow::errors::InvalidArgument;

absl::Status CheckIds(const Tensor& ids, int64_t lowest, int64_t num_classes,
                      const char* name) {
  const auto values = ids.flat<int64_t>();
  for (int64_t i = 0; i < values.size(); ++i) {
    if (values(i) < lowest || values(i) >= num_classes) {
      return InvalidArgument(name, " must be class ids in [0, ", num_classes, ")",
                             lowest < 0 ? ", or -1 for no class" : "", ", got ", values(i),
                             " at position ", i);
    }
  }
  return absl::OkStatus();
}

// The class matrix, and the checked classes that the op is about.
class Classes {
 public:
  absl::Status Read(OpKernelContext* ctx) {
    const Tensor *features, *own_ids, *shared_ids;
    TF_RETURN_IF_ERROR(ctx->input("features", &features));
    TF_RETURN_IF_ERROR(ctx->input("ids", &own_ids));
    TF_RETURN_IF_ERROR(ctx->input("shared_ids", &shared_ids));
    TF_RETURN_IF_ERROR(matrix_input_.Read(ctx, *features));
    matrix = matrix_input_.matrix();
    TF_RETURN_IF_ERROR(CheckShapes(*features, *own_ids, *shared_ids));
    TF_RETURN_IF_ERROR(CheckIds(*own_ids, -1, matrix.num_classes, "ids"));
    TF_RETURN_IF_ERROR(CheckIds(*shared_ids, 0, matrix.num_classes, "shared_ids"));
    own = {own_ids->flat<int64_t>().data(), own_ids->dim_size(0), own_ids->dim_size(1)};
    shared = {shared_ids->flat<int64_t>().data(), shared_ids->NumElements()};
    return absl::OkStatus();
  }

  ClassMatrix matrix;
  OwnClasses own;
  SharedClasses shared;

 private:
  static absl::Status CheckShapes(const Tensor& features, const Tensor& own_ids,
                                  const Tensor& shared_ids) {
    if (!TensorShapeUtils::IsMatrix(own_ids.shape()) ||
        own_ids.dim_size(0) != features.dim_size(0)) {
      return InvalidArgument("ids must be [batch, num_ids] with batch ", features.dim_size(0),
                             " as in the features, got ", own_ids.shape().DebugString());
    }
    if (!TensorShapeUtils::IsVector(shared_ids.shape())) {
      return InvalidArgument("shared_ids must be [num_shared], got ",
                             shared_ids.shape().DebugString());
    }
    if (own_ids.NumElements() + shared_ids.NumElements() >
        std::numeric_limits<int32_t>::max()) {
      return InvalidArgument("ids and shared_ids must be fewer than 2^31 together, got ",
                             own_ids.shape().DebugString(), " and ",
                             shared_ids.shape().DebugString());
    }
    return absl::OkStatus();
  }

  ClassMatrixInput matrix_input_;
};

class RowDotsOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* ctx) override {
    Classes classes;
    OP_REQUIRES_OK(ctx, classes.Read(ctx));
    const int64_t num_shared = classes.shared.size;
    Tensor *logits, *rows, *biases = nullptr;
    OP_REQUIRES_OK(ctx,
                   ctx->allocate_output(0, {classes.own.batch, classes.own.per_row}, &logits));
    OP_REQUIRES_OK(ctx, ctx->allocate_output(1, {num_shared, classes.matrix.dim}, &rows));
    if (classes.matrix.bias != nullptr) {
      OP_REQUIRES_OK(ctx, ctx->allocate_output(2, {num_shared}, &biases));
    }
    const ParallelFor parallel = IntraOpParallel(ctx);
    RowDots(classes.matrix, ctx->input(0).flat<float>().data(), classes.own, parallel,
            logits->flat<float>().data());
    GatherRows(classes.matrix, classes.shared, parallel, rows->flat<float>().data(),
               biases == nullptr ? nullptr : biases->flat<float>().data());
  }
};

class RowDotsGradOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* ctx) override {
    Classes classes;
    OP_REQUIRES_OK(ctx, classes.Read(ctx));
    RowDotsGradients gradients{};
    OP_REQUIRES_OK(ctx, ReadGradients(ctx, classes, &gradients));
    const ClassMatrix& matrix = classes.matrix;
    const ParallelFor parallel = IntraOpParallel(ctx);

    Tensor *d_features, *shape;
    OP_REQUIRES_OK(ctx, ctx->allocate_output("d_features", ctx->input(0).shape(), &d_features));
    RowDotsFeatureGradient(matrix, classes.own, gradients.d_logits, parallel,
                           d_features->flat<float>().data());
    OP_REQUIRES_OK(ctx, ctx->allocate_output("embeddings_shape", {2}, &shape));
    shape->flat<int64_t>().setValues({matrix.num_classes, matrix.dim});
    OP_REQUIRES_OK(ctx, WriteRows(ctx, classes, gradients, parallel));
  }

 private:
  static absl::Status ReadGradients(OpKernelContext* ctx, const Classes& classes,
                                    RowDotsGradients* gradients) {
    const Tensor *d_logits, *d_rows;
    OpInputList d_biases;
    TF_RETURN_IF_ERROR(ctx->input("d_logits", &d_logits));
    TF_RETURN_IF_ERROR(ctx->input("d_shared_rows", &d_rows));
    TF_RETURN_IF_ERROR(ctx->input_list("d_shared_biases", &d_biases));
    const TensorShape own({classes.own.batch, classes.own.per_row});
    const TensorShape shared({classes.shared.size, classes.matrix.dim});
    if (d_logits->shape() != own || d_rows->shape() != shared) {
      return InvalidArgument("d_logits must be ", own.DebugString(), " and d_shared_rows ",
                             shared.DebugString(), ", got ", d_logits->shape().DebugString(),
                             " and ", d_rows->shape().DebugString());
    }
    for (const Tensor& biases : d_biases) {
      if (biases.shape() != TensorShape({classes.shared.size})) {
        return InvalidArgument("d_shared_biases must be [", classes.shared.size, "], got ",
                               biases.shape().DebugString());
      }
    }
    *gradients = {ctx->input(0).flat<float>().data(), d_logits->flat<float>().data(),
                  d_rows->flat<float>().data(),
                  d_biases.size() == 0 ? nullptr : d_biases[0].flat<float>().data()};
    return absl::OkStatus();
  }

  static absl::Status WriteRows(OpKernelContext* ctx, const Classes& classes,
                                const RowDotsGradients& gradients,
                                const ParallelFor& parallel) {
    const int64_t dim = classes.matrix.dim;
    const MergedRows merged =
        MergeClasses(classes.own, classes.shared, classes.matrix.num_classes, parallel);
    Tensor *ids, *rows, *biases = nullptr;
    TF_RETURN_IF_ERROR(ctx->allocate_output("row_ids", {merged.size()}, &ids));
    TF_RETURN_IF_ERROR(ctx->allocate_output("d_rows", {merged.size(), dim}, &rows));
    OpOutputList d_biases;
    TF_RETURN_IF_ERROR(ctx->output_list("d_biases", &d_biases));
    if (d_biases.size() > 0) {
      TF_RETURN_IF_ERROR(d_biases.allocate(0, {merged.size()}, &biases));
    }
    std::copy(merged.ids.begin(), merged.ids.end(), ids->flat<int64_t>().data());
    RowDotsRowGradient(merged, gradients, classes.own, dim, parallel,
                       rows->flat<float>().data(),
                       biases == nullptr ? nullptr : biases->flat<float>().data());
    return absl::OkStatus();
  }
};

REGISTER_KERNEL_BUILDER(Name("LargeoutRowDots").Device(tensorflow::DEVICE_CPU), RowDotsOp);
REGISTER_KERNEL_BUILDER(Name("LargeoutRowDotsGrad").Device(tensorflow::DEVICE_CPU),
                        RowDotsGradOp);

}  // namespace
}  // namespace largeout
