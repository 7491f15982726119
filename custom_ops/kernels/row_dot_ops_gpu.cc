#include "custom_ops/cuda/row_dots.h"
#include "custom_ops/cuda/row_dots_gradient.h"
#include "custom_ops/kernels/gpu_context.h"
#include "custom_ops/kernels/row_dot_ops.h"

namespace largeout {
namespace {

using tensorflow::OpKernelContext;

struct GpuRowDot {
  static constexpr bool kReadsBfloat16 = false;

  // Ids are not checked here, see custom_ops/cuda/row_dots.h.
  static absl::Status CheckIds(const RowDotInput&) { return absl::OkStatus(); }

  static absl::Status RowDots(OpKernelContext* ctx, const RowDotInput& in, float* logits) {
    return FromCuda(cuda::RowDots(in.matrix, in.features(), in.own, logits, StreamOf(ctx)));
  }

  static absl::Status GatherRows(OpKernelContext* ctx, const RowDotInput& in, float* rows,
                                 float* biases) {
    return FromCuda(cuda::GatherRows(in.matrix, in.shared, rows, biases, StreamOf(ctx)));
  }

  static absl::Status FeatureGradient(OpKernelContext* ctx, const RowDotInput& in,
                                      const float* d_logits, float* d_features) {
    return FromCuda(
        cuda::RowDotsFeatureGradient(in.matrix, in.own, d_logits, d_features, StreamOf(ctx)));
  }

  // One row per id or class: the host does not know how many ids are distinct.
  static absl::Status RowGradient(OpKernelContext* ctx, const RowDotInput& in,
                                  const RowDotsGradients& gradients) {
    const int64_t dim = in.matrix.dim, num_classes = in.matrix.num_classes;
    const int64_t num_rows = cuda::RowGradientRows(in.own, in.shared, num_classes);
    largeout::RowGradient to;
    TF_RETURN_IF_ERROR(AllocateRowGradient(ctx, num_rows, dim, &to));
    GpuScratch scratch;
    TF_RETURN_IF_ERROR(scratch.Allocate(
        ctx, cuda::RowGradientScratchBytes(in.own, in.shared, num_classes, dim)));
    return FromCuda(cuda::RowDotsRowGradient(in.own, in.shared, num_classes, dim, gradients,
                                             scratch.data(), {to.ids, to.rows, to.bias},
                                             StreamOf(ctx)));
  }
};

LARGEOUT_REGISTER_ROW_DOT_OPS(GpuDeviceType(), GpuRowDot);

}  // namespace
}  // namespace largeout
