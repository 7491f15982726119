#include "custom_ops/kernels/row_dot_ops.h"

#include <algorithm>

#include "custom_ops/kernels/intra_op_parallel.h"

namespace largeout {
namespace {

using tensorflow::OpKernelContext;

struct CpuRowDot {
  static constexpr bool kReadsBfloat16 = true;

  static absl::Status CheckIds(const RowDotInput& in) {
    const int64_t num_classes = in.matrix.num_classes;
    TF_RETURN_IF_ERROR(CheckClassIds(in.own.ids, in.own.batch * in.own.per_row, in.own.per_row,
                                     -1, num_classes, "ids"));
    return CheckClassIds(in.shared.ids, in.shared.size, 1, 0, num_classes, "shared_ids");
  }

  static absl::Status RowDots(OpKernelContext* ctx, const RowDotInput& in, float* logits) {
    const auto classes = in.reads();
    largeout::RowDots(classes.matrix, in.features(), classes.own, IntraOpParallel(ctx), logits);
    return absl::OkStatus();
  }

  static absl::Status GatherRows(OpKernelContext* ctx, const RowDotInput& in, float* rows,
                                 float* biases) {
    const auto classes = in.reads();
    largeout::GatherRows(classes.matrix, classes.shared, IntraOpParallel(ctx), rows, biases);
    return absl::OkStatus();
  }

  static absl::Status FeatureGradient(OpKernelContext* ctx, const RowDotInput& in,
                                      const float* d_logits, float* d_features) {
    const auto classes = in.reads();
    RowDotsFeatureGradient(classes.matrix, classes.own, d_logits, IntraOpParallel(ctx),
                           d_features);
    return absl::OkStatus();
  }

  // Gradients of the distinct classes.
  static absl::Status RowGradient(OpKernelContext* ctx, const RowDotInput& in,
                                  const RowDotsGradients& gradients) {
    const ParallelFor parallel = IntraOpParallel(ctx);
    const MergedRows merged = MergeClasses(in.own, in.shared, parallel);
    largeout::RowGradient to;
    TF_RETURN_IF_ERROR(AllocateRowGradient(ctx, merged.size(), in.matrix.dim, &to));
    std::copy(merged.ids.begin(), merged.ids.end(), to.ids);
    RowDotsRowGradient(merged, gradients, in.own, in.matrix.dim, parallel, to.rows, to.bias);
    return absl::OkStatus();
  }
};

LARGEOUT_REGISTER_ROW_DOT_OPS(tensorflow::DEVICE_CPU, CpuRowDot);

}  // namespace
}  // namespace largeout
