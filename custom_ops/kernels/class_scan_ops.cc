#include "custom_ops/core/class_scan.h"
#include "custom_ops/kernels/class_matrix_input.h"
#include "custom_ops/kernels/intra_op_parallel.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace largeout {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShapeUtils;
using tensorflow::errors::InvalidArgument;

// labels must be [batch, num_labels] with ids in [-1, num_classes).
absl::Status CheckLabels(const Tensor& labels, int64_t batch, int64_t num_classes) {
  if (!TensorShapeUtils::IsMatrix(labels.shape()) || labels.dim_size(0) != batch) {
    return InvalidArgument("labels must be [batch, num_labels] with batch ", batch,
                           " as in the features, got ", labels.shape().DebugString());
  }
  const auto ids = labels.flat<int64_t>();
  for (int64_t i = 0; i < ids.size(); ++i) {
    if (ids(i) < -1 || ids(i) >= num_classes) {
      return InvalidArgument("labels must be class ids in [0, ", num_classes,
                             "), or -1 for padding, got ", ids(i), " at row ",
                             i / labels.dim_size(1));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckVector(const Tensor& vector, int64_t batch, const char* name) {
  if (!TensorShapeUtils::IsVector(vector.shape()) || vector.dim_size(0) != batch) {
    return InvalidArgument(name, " must be [batch] with batch ", batch,
                           " as in the features, got ", vector.shape().DebugString());
  }
  return absl::OkStatus();
}

Features FeaturesOf(const Tensor& features) {
  return {features.flat<float>().data(), features.dim_size(0)};
}

Labels LabelsOf(const Tensor& labels) {
  return {labels.flat<int64_t>().data(), labels.dim_size(1)};
}

class ClassStatisticsOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* ctx) override {
    const Tensor& features = ctx->input(0);
    const Tensor& labels = ctx->input(ctx->num_inputs() - 1);
    ClassMatrixInput input;
    OP_REQUIRES_OK(ctx, input.Read(ctx, features));
    const ClassMatrix matrix = input.matrix();
    OP_REQUIRES_OK(ctx, CheckLabels(labels, features.dim_size(0), matrix.num_classes));
    Tensor *log_partition, *true_logits, *ranks;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, {features.dim_size(0)}, &log_partition));
    OP_REQUIRES_OK(ctx, ctx->allocate_output(1, labels.shape(), &true_logits));
    OP_REQUIRES_OK(ctx, ctx->allocate_output(2, labels.shape(), &ranks));
    if (features.dim_size(0) == 0) return;
    ClassStatistics(matrix, FeaturesOf(features), LabelsOf(labels), IntraOpParallel(ctx),
                    log_partition->flat<float>().data(), true_logits->flat<float>().data(),
                    ranks->flat<int64_t>().data());
  }
};

class ClassTopKOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* ctx) override {
    const Tensor& features = ctx->input(0);
    const Tensor& k_input = ctx->input(ctx->num_inputs() - 1);
    ClassMatrixInput input;
    OP_REQUIRES_OK(ctx, input.Read(ctx, features));
    const ClassMatrix matrix = input.matrix();
    OP_REQUIRES(
        ctx, TensorShapeUtils::IsScalar(k_input.shape()),
        InvalidArgument("k must be a scalar, got shape ", k_input.shape().DebugString()));
    const int64_t k = k_input.scalar<int64_t>()();
    OP_REQUIRES(ctx, 1 <= k && k <= matrix.num_classes,
                InvalidArgument("k must be in [1, ", matrix.num_classes,
                                "], the number of classes, got ", k));
    Tensor *scores, *ids;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, {features.dim_size(0), k}, &scores));
    OP_REQUIRES_OK(ctx, ctx->allocate_output(1, {features.dim_size(0), k}, &ids));
    if (features.dim_size(0) == 0) return;
    ClassTopK(matrix, FeaturesOf(features), k, IntraOpParallel(ctx),
              scores->flat<float>().data(), ids->flat<int64_t>().data());
  }
};

class ClassSoftmaxGradientOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* ctx) override {
    const Tensor& features = ctx->input(0);
    const int rest = ctx->num_inputs() - 4;
    const Tensor &log_partition = ctx->input(rest), &weights = ctx->input(rest + 1);
    const Tensor &labels = ctx->input(rest + 2), &label_weights = ctx->input(rest + 3);
    ClassMatrixInput input;
    OP_REQUIRES_OK(ctx, input.Read(ctx, features));
    const ClassMatrix matrix = input.matrix();
    const int64_t batch = features.dim_size(0);
    OP_REQUIRES_OK(ctx, CheckVector(log_partition, batch, "log_partition"));
    OP_REQUIRES_OK(ctx, CheckVector(weights, batch, "weights"));
    OP_REQUIRES_OK(ctx, CheckLabels(labels, batch, matrix.num_classes));
    OP_REQUIRES(ctx, label_weights.shape() == labels.shape(),
                InvalidArgument("label_weights must have the shape of labels, ",
                                labels.shape().DebugString(), ", got ",
                                label_weights.shape().DebugString()));
    Tensor *d_features, *d_embeddings, *d_bias = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, features.shape(), &d_features));
    OP_REQUIRES_OK(ctx,
                   ctx->allocate_output(1, {matrix.num_classes, matrix.dim}, &d_embeddings));
    if (matrix.bias != nullptr) {
      OP_REQUIRES_OK(ctx, ctx->allocate_output(2, {matrix.num_classes}, &d_bias));
    }
    ClassSoftmaxGradient(matrix, FeaturesOf(features), log_partition.flat<float>().data(),
                         weights.flat<float>().data(), LabelsOf(labels),
                         label_weights.flat<float>().data(), IntraOpParallel(ctx),
                         d_features->flat<float>().data(), d_embeddings->flat<float>().data(),
                         d_bias == nullptr ? nullptr : d_bias->flat<float>().data());
  }
};

REGISTER_KERNEL_BUILDER(Name("LargeoutClassStatistics").Device(tensorflow::DEVICE_CPU),
                        ClassStatisticsOp);
REGISTER_KERNEL_BUILDER(Name("LargeoutClassTopK").Device(tensorflow::DEVICE_CPU), ClassTopKOp);
REGISTER_KERNEL_BUILDER(Name("LargeoutClassSoftmaxGradient").Device(tensorflow::DEVICE_CPU),
                        ClassSoftmaxGradientOp);

}  // namespace
}  // namespace largeout
