#include "custom_ops/core/class_scan.h"
#include "custom_ops/kernels/class_matrix_input.h"
#include "custom_ops/kernels/class_scan_input.h"
#include "custom_ops/kernels/intra_op_parallel.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace largeout {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

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
    int64_t k = 0;
    OP_REQUIRES_OK(ctx, ReadTopK(k_input, matrix.num_classes, &k));
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
    OP_REQUIRES_OK(ctx, CheckLabelWeights(label_weights, labels));
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
