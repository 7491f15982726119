#include "custom_ops/kernels/kernel_tree_ops.h"

#include "custom_ops/kernels/intra_op_parallel.h"
#include "custom_ops/kernels/sampled_values.h"

namespace largeout {
namespace {

using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::errors::InvalidArgument;

absl::Status CheckRowsOfTree(OpKernelContext* ctx, const KernelTreeRowsInput& in,
                             const TreeClasses& classes) {
  const int64_t unfit = FindUnfitClass(in.shape(), in.rows(), classes, IntraOpParallel(ctx));
  if (unfit < 0) return absl::OkStatus();
  return InvalidArgument(
      "a kernel tree needs class embeddings, biases and a projection that are finite, and "
      "small enough that sums of their squares do not overflow: squared norms up to ",
      LargestSquare(in.shape().num_classes), ", after the projection if there is one; class ",
      unfit, " violates this");
}

struct CpuKernelTree {
  static constexpr bool kReadsBfloat16 = true;

  static absl::Status Build(OpKernelContext* ctx, KernelTreeRowsInput* in) {
    TF_RETURN_IF_ERROR(CheckRowsOfTree(ctx, *in, {}));
    TF_RETURN_IF_ERROR(in->AllowWrites(ctx, CopyOnHost));
    BuildKernelTree(in->shape(), in->rows(), IntraOpParallel(ctx), in->sums());
    return absl::OkStatus();
  }

  static absl::Status Update(OpKernelContext* ctx, const Tensor& ids, KernelTreeRowsInput* in,
                             int64_t* num_changed) {
    TF_RETURN_IF_ERROR(CheckClassIds(ids, -1, in->shape().num_classes, "ids"));
    // An empty tensor may have no memory.
    static constexpr int64_t kNone = -1;
    const TreeClasses classes = {ids.NumElements() > 0 ? ids.flat<int64_t>().data() : &kNone,
                                 ids.NumElements()};
    TF_RETURN_IF_ERROR(CheckRowsOfTree(ctx, *in, classes));
    TF_RETURN_IF_ERROR(in->AllowWrites(ctx, CopyOnHost));
    *num_changed =
        UpdateKernelTree(in->shape(), in->rows(), classes, IntraOpParallel(ctx), in->sums());
    return absl::OkStatus();
  }

  static absl::Status Sample(OpKernelContext* ctx, const TreeQuery& query,
                             const TreeSample& sample) {
    TF_RETURN_IF_ERROR(CheckClassIds(query.labels, -1, query.tree.shape.num_classes, "labels"));
    const PhiloxSeed seed = SeedFrom(query.seed);
    const TreeDraws draws = MakeTreeDraws(query.batch(), query.num_sampled, query.shared, seed);
    const int64_t unfit = SampleKernelTree(query.tree, query.queries(), query.followed(), draws,
                                           seed, IntraOpParallel(ctx), sample);
    if (unfit < 0) return absl::OkStatus();
    return InvalidArgument(
        "features must be finite, their products with the class embeddings must not overflow, "
        "and the sums of the tree must match the embeddings; this fails for example ",
        unfit);
  }
};

LARGEOUT_REGISTER_KERNEL_TREE_OPS(tensorflow::DEVICE_CPU, CpuKernelTree);

}  // namespace
}  // namespace largeout
