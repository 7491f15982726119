#include "custom_ops/core/lsh_tables.h"
#include "custom_ops/kernels/hash_family_input.h"
#include "custom_ops/kernels/intra_op_parallel.h"
#include "custom_ops/kernels/lsh_tables_input.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace largeout {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::errors::InvalidArgument;

// Gives the variable memory of its own if a reader holds what it has.
absl::Status MakeWritable(OpKernelContext* ctx, tensorflow::Var* variable) {
  Tensor* value = variable->tensor();
  if (value->RefCountIsOne()) return absl::OkStatus();
  Tensor fresh;
  TF_RETURN_IF_ERROR(ctx->allocate_temp(value->dtype(), value->shape(), &fresh));
  *value = fresh;
  return absl::OkStatus();
}

class LshBuildOp : public OpKernel {
 public:
  explicit LshBuildOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, attributes_.Read(ctx));
  }

  void Compute(OpKernelContext* ctx) override {
    VariablePtr embeddings, offsets, ids;
    OP_REQUIRES_OK(ctx, LookUpVariable(ctx, "embeddings", &embeddings));
    OP_REQUIRES_OK(ctx, LookUpVariable(ctx, "offsets", &offsets));
    OP_REQUIRES_OK(ctx, LookUpVariable(ctx, "ids", &ids));
    OP_REQUIRES(ctx, offsets.get() != ids.get() && embeddings.get() != ids.get(),
                InvalidArgument("embeddings, offsets and ids must be three variables"));
    // A reader of the tables takes no lock of the embeddings while it holds theirs.
    tensorflow::tf_shared_lock embeddings_lock(*embeddings->mu());
    tensorflow::mutex *first = offsets->mu(), *second = ids->mu();
    if (second < first) std::swap(first, second);
    tensorflow::mutex_lock first_lock(*first), second_lock(*second);
    OP_REQUIRES_OK(ctx, CheckTableShapes(*offsets->tensor(), *ids->tensor()));
    const Tensor& rows = *embeddings->tensor();
    OP_REQUIRES(ctx,
                rows.dtype() == tensorflow::DT_FLOAT && rows.dims() == 2 &&
                    rows.dim_size(1) > 0 && rows.dim_size(0) == ids->tensor()->dim_size(1),
                InvalidArgument("embeddings must be a float variable [",
                                ids->tensor()->dim_size(1), ", dim], one row for each class ",
                                "of the tables, got ", rows.shape().DebugString()));
    HashFamily family;
    OP_REQUIRES_OK(ctx, attributes_.Family(rows.dim_size(1), ctx->input(1), &family));
    OP_REQUIRES(ctx,
                offsets->tensor()->dim_size(0) == family.num_tables &&
                    offsets->tensor()->dim_size(1) == (int64_t{1} << family.bits) + 1,
                InvalidArgument("offsets must be [", family.num_tables, ", 2^", family.bits,
                                " + 1], got ", offsets->tensor()->shape().DebugString()));
    OP_REQUIRES_OK(ctx, MakeWritable(ctx, offsets.get()));
    OP_REQUIRES_OK(ctx, MakeWritable(ctx, ids.get()));
    BuildLshTables(family, rows.flat<float>().data(), rows.dim_size(0), IntraOpParallel(ctx),
                   offsets->tensor()->flat<int32_t>().data(),
                   ids->tensor()->flat<int32_t>().data());
  }

 private:
  HashFamilyAttributes attributes_;
};

REGISTER_KERNEL_BUILDER(Name("LargeoutLshBuild").Device(tensorflow::DEVICE_CPU), LshBuildOp);

}  // namespace
}  // namespace largeout
