#include "custom_ops/core/lsh_tables.h"
#include "custom_ops/kernels/hash_family_input.h"
#include "custom_ops/kernels/intra_op_parallel.h"
#include "custom_ops/kernels/lsh_build_input.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace largeout {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;

class LshBuildOp : public OpKernel {
 public:
  explicit LshBuildOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, attributes_.Read(ctx));
  }

  void Compute(OpKernelContext* ctx) override {
    LshBuildInput in;
    OP_REQUIRES_OK(ctx, in.Read(ctx));
    HashFamily family;
    OP_REQUIRES_OK(ctx, attributes_.Family(in.dim(), ctx->input(1), &family));
    OP_REQUIRES_OK(ctx, in.MakeWritable(ctx, family));
    BuildLshTables(family, in.rows(), in.num_rows(), IntraOpParallel(ctx), in.offsets(),
                   in.ids());
  }

 private:
  HashFamilyAttributes attributes_;
};

REGISTER_KERNEL_BUILDER(Name("LargeoutLshBuild").Device(tensorflow::DEVICE_CPU), LshBuildOp);

}  // namespace
}  // namespace largeout
