#include "custom_ops/cuda/row_dots.h"
#include "custom_ops/cuda/row_dots_gradient.h"
#include "custom_ops/kernels/bag_ops.h"
#include "custom_ops/kernels/gpu_context.h"

namespace largeout {
namespace {

using tensorflow::OpKernelContext;

struct GpuBag {
  // Ids are not checked here, see custom_ops/cuda/row_dots.h.
  static absl::Status CheckIds(const BagInput&) { return absl::OkStatus(); }

  static absl::Status Sums(OpKernelContext* ctx, const BagInput& in, float* sums) {
    return FromCuda(
        cuda::RowDotsFeatureGradient(in.table, in.bags, in.weights, sums, StreamOf(ctx)));
  }

  // One row per id, or per row of the table: the host does not know how many ids are distinct.
  static absl::Status RowGradient(OpKernelContext* ctx, const BagInput& in,
                                  const float* d_sums) {
    const int64_t dim = in.table.dim, num_rows = in.table.num_classes;
    const SharedClasses none{};
    BagGradient to;
    TF_RETURN_IF_ERROR(
        AllocateBagGradient(ctx, cuda::RowGradientRows(in.bags, none, num_rows), dim, &to));
    GpuScratch scratch;
    TF_RETURN_IF_ERROR(
        scratch.Allocate(ctx, cuda::RowGradientScratchBytes(in.bags, none, num_rows, dim)));
    return FromCuda(cuda::RowDotsRowGradient(
        in.bags, none, num_rows, dim, {d_sums, in.weights, nullptr, nullptr}, scratch.data(),
        {to.ids, to.rows, nullptr}, StreamOf(ctx)));
  }
};

LARGEOUT_REGISTER_BAG_OPS(GpuDeviceType(), GpuBag);

}  // namespace
}  // namespace largeout
