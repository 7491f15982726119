// The variables of a kernel tree: the rows that it sums, and its sums, in place and locked.

#ifndef LARGEOUT_CUSTOM_OPS_KERNELS_KERNEL_TREE_INPUT_H_
#define LARGEOUT_CUSTOM_OPS_KERNELS_KERNEL_TREE_INPUT_H_

#include "custom_ops/core/kernel_tree/kernel_tree.h"
#include "custom_ops/kernels/class_matrix_input.h"
#include "custom_ops/kernels/largeout_op.h"
#include "custom_ops/kernels/variable_locks.h"

namespace largeout {

// OK if the value is valid for the sums of such a tree.
inline absl::Status CheckSums(const tensorflow::Tensor& sums, const TreeShape& shape,
                              int64_t dim) {
  return CheckVariable(sums, "sums", tensorflow::DT_FLOAT, {shape.num_nodes(), TreeWidth(dim)});
}

// The rows of a tree, and what is written: the sums, and the projected rows if there is a
// projection. Holds the locks during its lifetime.
class KernelTreeRowsInput {
 public:
  // Reads inputs `embeddings`, `bias`, `projection` (no handle, or the handles of the
  // projection and the projected rows) and `sums`, and checks their shapes.
  absl::Status Read(tensorflow::OpKernelContext* ctx, int64_t leaf_size,
                    bool accepts_bfloat16) {
    tensorflow::OpInputList projection;
    TF_RETURN_IF_ERROR(CheckDistinctVariables(ctx));
    TF_RETURN_IF_ERROR(ctx->input_list("projection", &projection));
    if (projection.size() != 0 && projection.size() != 2) {
      return tensorflow::errors::InvalidArgument(
          "projection must be no variable or two, the projection and the projected rows, got ",
          projection.size());
    }
    TF_RETURN_IF_ERROR(classes_.Read(ctx, accepts_bfloat16));
    rows_.matrix = classes_.matrix();
    shape_ = MakeTreeShape(rows_.matrix.num_classes, leaf_size);
    if (projection.size() == 2) {
      TF_RETURN_IF_ERROR(projection_.Find(ctx, projection[0]));
      TF_RETURN_IF_ERROR(projected_.Find(ctx, projection[1]));
      projection_.LockShared();
      projected_.Lock();
      TF_RETURN_IF_ERROR(TakeProjection());
    }
    TF_RETURN_IF_ERROR(sums_.Find(ctx, "sums"));
    sums_.Lock();
    return CheckSums(*sums_.tensor(0), shape_, rows_.dim());
  }

  // Makes the written variables writable in place. Call it after all checks. copy: see
  // LockedVariables::AllowWrites.
  template <class Copy>
  absl::Status AllowWrites(tensorflow::OpKernelContext* ctx, const Copy& copy) {
    TF_RETURN_IF_ERROR(sums_.AllowWrites(ctx, copy));
    if (rows_.projection == nullptr) return absl::OkStatus();
    TF_RETURN_IF_ERROR(projected_.AllowWrites(ctx, copy));
    rows_.projected = projected_.tensor(0)->flat<float>().data();
    return absl::OkStatus();
  }

  const TreeShape& shape() const { return shape_; }
  const TreeRows& rows() const { return rows_; }
  // Call it after AllowWrites.
  float* sums() const { return sums_.tensor(0)->flat<float>().data(); }

 private:
  absl::Status TakeProjection() {
    const tensorflow::Tensor& projection = *projection_.tensor(0);
    const int64_t dim = rows_.input_dim();
    if (projection.dtype() != tensorflow::DT_FLOAT || projection.dims() != 2 ||
        projection.dim_size(0) < 1 || projection.dim_size(1) != dim) {
      return WrongShape(
          projection, "projection", "a float variable [projected_dim, ", dim,
          "], as many numbers a row as an embedding has, and one more for a bias");
    }
    rows_.projection = projection.flat<float>().data();
    rows_.projected_dim = projection.dim_size(0);
    return CheckVariable(*projected_.tensor(0), "projected rows", tensorflow::DT_FLOAT,
                         {shape_.num_classes, rows_.projected_dim});
  }

  ClassMatrixInput classes_;
  // Locked in this order: draws from projected rows lock these rows, which are their class
  // matrix, before the sums.
  LockedVariables projection_, projected_, sums_;
  TreeShape shape_{};
  TreeRows rows_{};
};

// The tree that an op draws from: inputs `embeddings` and `bias`, the rows that are summed, and
// `sums`. Holds the locks during its lifetime.
class KernelTreeInput {
 public:
  absl::Status Read(tensorflow::OpKernelContext* ctx, int64_t leaf_size,
                    const tensorflow::Tensor& features, bool accepts_bfloat16) {
    TF_RETURN_IF_ERROR(classes_.Read(ctx, features, accepts_bfloat16));
    tree_.rows = classes_.matrix();
    tree_.shape = MakeTreeShape(tree_.rows.num_classes, leaf_size);
    TF_RETURN_IF_ERROR(sums_.Find(ctx, "sums"));
    sums_.LockShared();
    TF_RETURN_IF_ERROR(CheckSums(*sums_.tensor(0), tree_.shape, tree_.dim()));
    tree_.sums = sums_.tensor(0)->flat<float>().data();
    return absl::OkStatus();
  }

  KernelTree tree(double alpha) const {
    KernelTree tree = tree_;
    tree.alpha = alpha;
    return tree;
  }

 private:
  ClassMatrixInput classes_;
  LockedVariables sums_;
  KernelTree tree_{};
};

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_KERNELS_KERNEL_TREE_INPUT_H_
