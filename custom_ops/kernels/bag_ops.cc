#include "custom_ops/kernels/bag_ops.h"

#include <algorithm>

#include "custom_ops/kernels/intra_op_parallel.h"

namespace largeout {
namespace {

using tensorflow::OpKernelContext;

struct CpuBag {
  static absl::Status CheckIds(const BagInput& in) {
    return CheckClassIds(in.bags.ids, in.bags.size(), in.bags.per_row, -1, in.table.num_classes,
                         "ids");
  }

  static absl::Status Sums(OpKernelContext* ctx, const BagInput& in, float* sums) {
    RowDotsFeatureGradient(in.table, in.bags, in.weights, IntraOpParallel(ctx), sums);
    return absl::OkStatus();
  }

  // Gradients of the distinct rows.
  static absl::Status RowGradient(OpKernelContext* ctx, const BagInput& in,
                                  const float* d_sums) {
    const ParallelFor parallel = IntraOpParallel(ctx);
    const MergedRows merged = MergeClasses(in.bags, SharedClasses{}, parallel);
    BagGradient to;
    TF_RETURN_IF_ERROR(AllocateBagGradient(ctx, merged.size(), in.table.dim, &to));
    std::copy(merged.ids.begin(), merged.ids.end(), to.ids);
    RowDotsRowGradient(merged, {d_sums, in.weights, nullptr, nullptr}, in.bags, in.table.dim,
                       parallel, to.rows, nullptr);
    return absl::OkStatus();
  }
};

LARGEOUT_REGISTER_BAG_OPS(tensorflow::DEVICE_CPU, CpuBag);

}  // namespace
}  // namespace largeout
