#include "custom_ops/cuda/row_dots.h"
#include "custom_ops/cuda/row_dots_gradient.h"
#include "custom_ops/kernels/gpu_context.h"
#include "custom_ops/kernels/largeout_op.h"
#include "custom_ops/kernels/row_dot_input.h"

namespace largeout {
namespace {

using tensorflow::DEVICE_GPU;
using tensorflow::OpKernelContext;
using tensorflow::OpOutputList;
using tensorflow::Tensor;

// Ids are not looked at here, see custom_ops/cuda/row_dots.h.
class RowDotsGpuOp : public LargeoutOp {
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
    OP_REQUIRES_OK(ctx,
                   FromCuda(cuda::RowDots(in.matrix, ctx->input(0).flat<float>().data(), in.own,
                                          logits->flat<float>().data(), StreamOf(ctx))));
    OP_REQUIRES_OK(
        ctx, FromCuda(cuda::GatherRows(
                 in.matrix, in.shared, rows->flat<float>().data(),
                 biases == nullptr ? nullptr : biases->flat<float>().data(), StreamOf(ctx))));
  }
};

class RowDotsGradGpuOp : public LargeoutOp {
 public:
  using LargeoutOp::LargeoutOp;

  void Run(OpKernelContext* ctx) override {
    RowDotInput in;
    OP_REQUIRES_OK(ctx, in.Read(ctx));
    RowDotsGradients gradients{};
    OP_REQUIRES_OK(ctx, in.ReadGradients(ctx, &gradients));
    Tensor *d_features, *shape;
    OP_REQUIRES_OK(ctx, ctx->allocate_output("d_features", ctx->input(0).shape(), &d_features));
    OP_REQUIRES_OK(ctx, FromCuda(cuda::RowDotsFeatureGradient(
                            in.matrix, in.own, gradients.d_logits,
                            d_features->flat<float>().data(), StreamOf(ctx))));
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, "embeddings_shape", {2}, &shape));
    shape->flat<int64_t>()(0) = in.matrix.num_classes;
    shape->flat<int64_t>()(1) = in.matrix.dim;
    OP_REQUIRES_OK(ctx, WriteRows(ctx, in, gradients));
  }

 private:
  static absl::Status WriteRows(OpKernelContext* ctx, const RowDotInput& in,
                                const RowDotsGradients& gradients) {
    const int64_t dim = in.matrix.dim, num_classes = in.matrix.num_classes;
    const int64_t num_rows = cuda::RowGradientRows(in.own, in.shared, num_classes);
    Tensor *ids, *rows, *biases = nullptr;
    TF_RETURN_IF_ERROR(AllocateOutput(ctx, "row_ids", {num_rows}, &ids));
    TF_RETURN_IF_ERROR(AllocateOutput(ctx, "d_rows", {num_rows, dim}, &rows));
    OpOutputList d_biases;
    TF_RETURN_IF_ERROR(ctx->output_list("d_biases", &d_biases));
    if (d_biases.size() > 0) TF_RETURN_IF_ERROR(d_biases.allocate(0, {num_rows}, &biases));
    GpuScratch scratch;
    TF_RETURN_IF_ERROR(scratch.Allocate(
        ctx, cuda::RowGradientScratchBytes(in.own, in.shared, num_classes, dim)));
    const cuda::RowGradient gradient = {
        ids->flat<int64_t>().data(), rows->flat<float>().data(),
        biases == nullptr ? nullptr : biases->flat<float>().data()};
    return FromCuda(cuda::RowDotsRowGradient(in.own, in.shared, num_classes, dim, gradients,
                                             scratch.data(), gradient, StreamOf(ctx)));
  }
};

REGISTER_KERNEL_BUILDER(
    Name("LargeoutRowDots").Device(DEVICE_GPU).HostMemory("embeddings").HostMemory("bias"),
    RowDotsGpuOp);
REGISTER_KERNEL_BUILDER(Name("LargeoutRowDotsGrad")
                            .Device(DEVICE_GPU)
                            .HostMemory("embeddings")
                            .HostMemory("bias")
                            .HostMemory("embeddings_shape"),
                        RowDotsGradGpuOp);

}  // namespace
}  // namespace largeout
