#include "custom_ops/cuda/kernel_tree.h"
#include "custom_ops/kernels/gpu_context.h"
#include "custom_ops/kernels/kernel_tree_ops.h"

namespace largeout {
namespace {

using tensorflow::OpKernelContext;
using tensorflow::Tensor;

// Rows, ids, labels and masses are not checked here, see custom_ops/cuda/kernel_tree.h.
struct GpuKernelTree {
  static constexpr bool kReadsBfloat16 = false;

  static absl::Status Build(OpKernelContext* ctx, KernelTreeRowsInput* in) {
    TF_RETURN_IF_ERROR(AllowWrites(ctx, in));
    return FromCuda(cuda::BuildKernelTree(in->shape(), in->rows(), in->sums(), StreamOf(ctx)));
  }

  static absl::Status Update(OpKernelContext* ctx, const Tensor& ids, KernelTreeRowsInput* in,
                             int64_t* num_changed) {
    GpuScratch scratch;
    TF_RETURN_IF_ERROR(scratch.Allocate(ctx, cuda::UpdateKernelTreeScratchBytes(in->shape())));
    TF_RETURN_IF_ERROR(AllowWrites(ctx, in));
    return FromCuda(cuda::UpdateKernelTree(in->shape(), in->rows(), ids.flat<int64_t>().data(),
                                           ids.NumElements(), scratch.data(), in->sums(),
                                           num_changed, StreamOf(ctx)));
  }

  static absl::Status Sample(OpKernelContext* ctx, const TreeQuery& query,
                             const TreeSample& sample) {
    const Labels labels = query.followed();
    const cuda::TreeWalk walk = {query.batch(), query.num_sampled, query.shared, labels.width};
    GpuScratch scratch;
    TF_RETURN_IF_ERROR(
        scratch.Allocate(ctx, cuda::SampleKernelTreeScratchBytes(query.tree, walk)));
    return FromCuda(cuda::SampleKernelTree(query.tree, query.queries().data, labels.ids, walk,
                                           query.seed, scratch.data(), sample, StreamOf(ctx)));
  }

 private:
  static absl::Status AllowWrites(OpKernelContext* ctx, KernelTreeRowsInput* in) {
    return in->AllowWrites(
        ctx, [ctx](const Tensor& from, Tensor* to) { return CopyTensor(ctx, from, to); });
  }
};

LARGEOUT_REGISTER_KERNEL_TREE_OPS(GpuDeviceType(), GpuKernelTree);

}  // namespace
}  // namespace largeout
