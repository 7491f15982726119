// The variables that a build of hash tables reads and writes in place.

#ifndef LARGEOUT_CUSTOM_OPS_KERNELS_LSH_BUILD_INPUT_H_
#define LARGEOUT_CUSTOM_OPS_KERNELS_LSH_BUILD_INPUT_H_

#include <optional>
#include <utility>

#include "custom_ops/core/lsh_hash.h"
#include "custom_ops/kernels/largeout_op.h"
#include "custom_ops/kernels/lsh_tables_input.h"

namespace largeout {

// Holds the locks as long as it lives.
class LshBuildInput {
 public:
  absl::Status Read(tensorflow::OpKernelContext* ctx) {
    TF_RETURN_IF_ERROR(LookUpVariable(ctx, "embeddings", &embeddings_));
    TF_RETURN_IF_ERROR(LookUpVariable(ctx, "offsets", &offsets_));
    TF_RETURN_IF_ERROR(LookUpVariable(ctx, "ids", &ids_));
    TF_RETURN_IF_ERROR(CheckDistinctVariables(ctx));
    Lock();
    TF_RETURN_IF_ERROR(CheckTableShapes(*offsets_->tensor(), *ids_->tensor()));
    const tensorflow::Tensor& rows = *embeddings_->tensor();
    const int64_t num_classes = ids_->tensor()->dim_size(1);
    if (rows.dtype() == tensorflow::DT_FLOAT && rows.dims() == 2 && rows.dim_size(1) > 0 &&
        rows.dim_size(0) == num_classes) {
      return absl::OkStatus();
    }
    return tensorflow::errors::InvalidArgument(
        "embeddings must be a float variable [", num_classes,
        ", dim], one row for each class of the tables, got ", rows.shape().DebugString());
  }

  const float* rows() const { return embeddings_->tensor()->flat<float>().data(); }
  int64_t num_rows() const { return embeddings_->tensor()->dim_size(0); }
  int64_t dim() const { return embeddings_->tensor()->dim_size(1); }
  int32_t* offsets() const { return MutableTableNumbers(offsets_->tensor()); }
  int32_t* ids() const { return MutableTableNumbers(ids_->tensor()); }

  // Makes both tables writable, if they are those of the family.
  absl::Status MakeWritable(tensorflow::OpKernelContext* ctx, const HashFamily& family) const {
    const tensorflow::Tensor& offsets = *offsets_->tensor();
    if (offsets.dim_size(0) != family.num_tables ||
        offsets.dim_size(1) != (int64_t{1} << family.bits) + 1) {
      return tensorflow::errors::InvalidArgument("offsets must be [", family.num_tables, ", 2^",
                                                 family.bits, " + 1], got ",
                                                 offsets.shape().DebugString());
    }
    tensorflow::Tensor own_offsets, own_ids;
    TF_RETURN_IF_ERROR(MakeOwn(ctx, offsets, &own_offsets));
    TF_RETURN_IF_ERROR(MakeOwn(ctx, *ids_->tensor(), &own_ids));
    *offsets_->tensor() = own_offsets;
    *ids_->tensor() = own_ids;
    return absl::OkStatus();
  }

 private:
  // A reader of the tables takes no lock of the embeddings while it holds theirs.
  void Lock() {
    embeddings_lock_.emplace(*embeddings_->mu());
    tensorflow::mutex *first = offsets_->mu(), *second = ids_->mu();
    if (second < first) std::swap(first, second);
    first_lock_.emplace(*first);
    second_lock_.emplace(*second);
  }

  // Memory of the table's own: other memory if a reader holds what it has. All of it will be
  // written.
  static absl::Status MakeOwn(tensorflow::OpKernelContext* ctx, const tensorflow::Tensor& table,
                              tensorflow::Tensor* own) {
    if (!table.RefCountIsOne()) return ctx->allocate_temp(table.dtype(), table.shape(), own);
    *own = table;
    return absl::OkStatus();
  }

  VariablePtr embeddings_, offsets_, ids_;
  std::optional<tensorflow::tf_shared_lock> embeddings_lock_;
  std::optional<tensorflow::mutex_lock> first_lock_, second_lock_;
};

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_KERNELS_LSH_BUILD_INPUT_H_
