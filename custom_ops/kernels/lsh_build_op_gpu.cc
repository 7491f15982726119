#include "custom_ops/cuda/lsh_tables.h"
#include "custom_ops/kernels/gpu_context.h"
#include "custom_ops/kernels/hash_family_input.h"
#include "custom_ops/kernels/largeout_op.h"
#include "custom_ops/kernels/lsh_build_input.h"

namespace largeout {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;

class LshBuildGpuOp : public LargeoutOp {
 public:
  explicit LshBuildGpuOp(OpKernelConstruction* ctx) : LargeoutOp(ctx) {
    OP_REQUIRES_OK(ctx, attributes_.Read(ctx));
  }

  void Run(OpKernelContext* ctx) override {
    LshBuildInput in;
    OP_REQUIRES_OK(ctx, in.Read(ctx));
    HashFamily family;
    OP_REQUIRES_OK(ctx, attributes_.FamilyUnread(in.dim(), ctx->input(1), &family));
    GpuScratch scratch;
    OP_REQUIRES_OK(
        ctx, scratch.Allocate(ctx, cuda::BuildLshTablesScratchBytes(family, in.num_rows())));
    OP_REQUIRES_OK(ctx, in.MakeWritable(ctx, family));
    OP_REQUIRES_OK(ctx,
                   FromCuda(cuda::BuildLshTables(family, in.rows(), in.num_rows(), in.offsets(),
                                                 in.ids(), scratch.data(), StreamOf(ctx))));
  }

 private:
  HashFamilyAttributes attributes_;
};

REGISTER_KERNEL_BUILDER(Name("LargeoutLshBuild")
                            .Device(tensorflow::DEVICE_GPU)
                            .HostMemory("embeddings")
                            .HostMemory("offsets")
                            .HostMemory("ids"),
                        LshBuildGpuOp);

}  // namespace
}  // namespace largeout
