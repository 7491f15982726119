#include "custom_ops/cuda/class_scan.h"
#include "custom_ops/kernels/class_matrix_input.h"
#include "custom_ops/kernels/class_scan_input.h"
#include "custom_ops/kernels/gpu_context.h"

namespace largeout {
namespace {

using tensorflow::DEVICE_GPU;
using tensorflow::OpKernel;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

// Labels are not looked at here, see custom_ops/cuda/class_scan.h.
class ClassStatisticsGpuOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* ctx) override {
    const Tensor& features = ctx->input(0);
    const Tensor& labels = ctx->input(ctx->num_inputs() - 1);
    const int64_t batch = features.dim_size(0);
    ClassMatrixInput input;
    OP_REQUIRES_OK(ctx, input.Read(ctx, features));
    const ClassMatrix matrix = input.matrix();
    OP_REQUIRES_OK(ctx, CheckLabelShape(labels, batch));
    Tensor *log_partition, *true_logits, *ranks;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, {batch}, &log_partition));
    OP_REQUIRES_OK(ctx, ctx->allocate_output(1, labels.shape(), &true_logits));
    OP_REQUIRES_OK(ctx, ctx->allocate_output(2, labels.shape(), &ranks));
    if (batch == 0) return;
    GpuScratch scratch;
    OP_REQUIRES_OK(
        ctx, scratch.Allocate(ctx, cuda::ClassStatisticsScratchBytes(batch, matrix.num_classes,
                                                                     labels.dim_size(1))));
    OP_REQUIRES_OK(
        ctx, FromCuda(cuda::ClassStatistics(matrix, FeaturesOf(features), LabelsOf(labels),
                                            scratch.data(), log_partition->flat<float>().data(),
                                            true_logits->flat<float>().data(),
                                            ranks->flat<int64_t>().data(), StreamOf(ctx))));
  }
};

class ClassTopKGpuOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* ctx) override {
    const Tensor& features = ctx->input(0);
    const int64_t batch = features.dim_size(0);
    ClassMatrixInput input;
    OP_REQUIRES_OK(ctx, input.Read(ctx, features));
    const ClassMatrix matrix = input.matrix();
    int64_t k = 0;
    OP_REQUIRES_OK(ctx, ReadTopK(ctx->input(ctx->num_inputs() - 1), matrix.num_classes, &k));
    OP_REQUIRES(
        ctx, k <= cuda::kMostTopK,
        tensorflow::errors::InvalidArgument("on a GPU k must be at most ", cuda::kMostTopK,
                                            ", got ", k, "; take more under tf.device('CPU')"));
    Tensor *scores, *ids;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, {batch, k}, &scores));
    OP_REQUIRES_OK(ctx, ctx->allocate_output(1, {batch, k}, &ids));
    if (batch == 0) return;
    GpuScratch scratch;
    OP_REQUIRES_OK(
        ctx, scratch.Allocate(ctx, cuda::ClassTopKScratchBytes(batch, matrix.num_classes, k)));
    OP_REQUIRES_OK(ctx, FromCuda(cuda::ClassTopK(matrix, FeaturesOf(features), k,
                                                 scratch.data(), scores->flat<float>().data(),
                                                 ids->flat<int64_t>().data(), StreamOf(ctx))));
  }
};

class ClassSoftmaxGradientGpuOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* ctx) override {
    const Tensor& features = ctx->input(0);
    const int rest = ctx->num_inputs() - 4;
    const Tensor &log_partition = ctx->input(rest), &weights = ctx->input(rest + 1);
    const Tensor &labels = ctx->input(rest + 2), &label_weights = ctx->input(rest + 3);
    const int64_t batch = features.dim_size(0);
    ClassMatrixInput input;
    OP_REQUIRES_OK(ctx, input.Read(ctx, features));
    const ClassMatrix matrix = input.matrix();
    OP_REQUIRES_OK(ctx, CheckVector(log_partition, batch, "log_partition"));
    OP_REQUIRES_OK(ctx, CheckVector(weights, batch, "weights"));
    OP_REQUIRES_OK(ctx, CheckLabelShape(labels, batch));
    OP_REQUIRES_OK(ctx, CheckLabelWeights(label_weights, labels));
    Tensor *d_features, *d_embeddings, *d_bias = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, features.shape(), &d_features));
    OP_REQUIRES_OK(ctx,
                   ctx->allocate_output(1, {matrix.num_classes, matrix.dim}, &d_embeddings));
    if (matrix.bias != nullptr) {
      OP_REQUIRES_OK(ctx, ctx->allocate_output(2, {matrix.num_classes}, &d_bias));
    }
    GpuScratch scratch;
    OP_REQUIRES_OK(ctx, scratch.Allocate(ctx, cuda::ClassSoftmaxGradientScratchBytes(
                                                  batch, matrix.num_classes, matrix.dim)));
    const cuda::ScanWeights scan_weights = {log_partition.flat<float>().data(),
                                            weights.flat<float>().data(),
                                            label_weights.flat<float>().data()};
    OP_REQUIRES_OK(
        ctx, FromCuda(cuda::ClassSoftmaxGradient(
                 matrix, FeaturesOf(features), LabelsOf(labels), scan_weights, scratch.data(),
                 d_features->flat<float>().data(), d_embeddings->flat<float>().data(),
                 d_bias == nullptr ? nullptr : d_bias->flat<float>().data(), StreamOf(ctx))));
  }
};

REGISTER_KERNEL_BUILDER(Name("LargeoutClassStatistics")
                            .Device(DEVICE_GPU)
                            .HostMemory("embeddings")
                            .HostMemory("bias"),
                        ClassStatisticsGpuOp);
REGISTER_KERNEL_BUILDER(Name("LargeoutClassTopK")
                            .Device(DEVICE_GPU)
                            .HostMemory("embeddings")
                            .HostMemory("bias")
                            .HostMemory("k"),
                        ClassTopKGpuOp);
REGISTER_KERNEL_BUILDER(Name("LargeoutClassSoftmaxGradient")
                            .Device(DEVICE_GPU)
                            .HostMemory("embeddings")
                            .HostMemory("bias"),
                        ClassSoftmaxGradientGpuOp);

}  // namespace
}  // namespace largeout
