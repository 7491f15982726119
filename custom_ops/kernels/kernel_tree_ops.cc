#include "custom_ops/kernels/kernel_tree_ops.h"

#include <cstring>
#include <vector>

#include "custom_ops/kernels/intra_op_parallel.h"
#include "custom_ops/kernels/sampled_values.h"

namespace largeout {
namespace {

using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::errors::InvalidArgument;

absl::Status CopyOnHost(const Tensor& from, Tensor* to) {
  std::memcpy(to->data(), from.data(), from.TotalBytes());
  return absl::OkStatus();
}

// Looks at the leaves with flags[leaf] != 0, or at all if `flags` is null.
absl::Status CheckRowsOfTree(OpKernelContext* ctx, const KernelTreeRowsInput& in,
                             const uint8_t* flags) {
  const int64_t unfit = FindUnfitClass(in.shape(), in.rows(), flags, IntraOpParallel(ctx));
  if (unfit < 0) return absl::OkStatus();
  return InvalidArgument(
      "a kernel tree needs class embeddings, biases and a projection that are finite, and not "
      "so large that sums of their squares overflow: squared norms up to ",
      LargestSquare(in.shape().num_classes),
      ", after the projection if there is one; those of "
      "class ",
      unfit, " are not");
}

struct Cpu {
  static absl::Status Build(OpKernelContext* ctx, KernelTreeRowsInput* in) {
    TF_RETURN_IF_ERROR(CheckRowsOfTree(ctx, *in, nullptr));
    TF_RETURN_IF_ERROR(in->AllowWrites(ctx, CopyOnHost));
    BuildKernelTree(in->shape(), in->rows(), IntraOpParallel(ctx), in->sums());
    return absl::OkStatus();
  }

  static absl::Status Update(OpKernelContext* ctx, const Tensor& ids, KernelTreeRowsInput* in,
                             int64_t* num_changed) {
    const TreeShape& shape = in->shape();
    TF_RETURN_IF_ERROR(CheckClassIds(ids, -1, shape.num_classes, "ids"));
    std::vector<uint8_t> flags(shape.num_leaves());
    const int64_t* id = ids.flat<int64_t>().data();
    for (int64_t i = 0; i < ids.NumElements(); ++i) {
      if (id[i] >= 0) flags[id[i] / shape.leaf_size] = 1;
    }
    TF_RETURN_IF_ERROR(CheckRowsOfTree(ctx, *in, flags.data()));
    TF_RETURN_IF_ERROR(in->AllowWrites(ctx, CopyOnHost));
    *num_changed =
        UpdateKernelTree(shape, in->rows(), flags.data(), IntraOpParallel(ctx), in->sums());
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
        "features must be finite, and their products with the class embeddings must not "
        "overflow; those of row ",
        unfit,
        " are not or do, or the sums of the tree are not "
        "those of the embeddings");
  }
};

LARGEOUT_REGISTER_KERNEL_TREE_OPS(tensorflow::DEVICE_CPU, Cpu);

}  // namespace
}  // namespace largeout
