#include "custom_ops/cuda/lsh_hash.h"
#include "custom_ops/kernels/gpu_context.h"
#include "custom_ops/kernels/hash_family_input.h"
#include "custom_ops/kernels/largeout_op.h"

namespace largeout {
namespace {

using tensorflow::DEVICE_GPU;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

// Inputs vectors [n, dim] and functions, both in device memory. Buckets, or single values.
template <bool kSingleValues>
class DenseHashGpuOp : public LargeoutOp {
 public:
  explicit DenseHashGpuOp(OpKernelConstruction* ctx) : LargeoutOp(ctx) {
    OP_REQUIRES_OK(ctx, attributes_.Read(ctx));
  }

  void Run(OpKernelContext* ctx) override {
    const Tensor& vectors = ctx->input(0);
    OP_REQUIRES(
        ctx, vectors.dims() == 2,
        tensorflow::errors::InvalidArgument("vectors must have shape [n, dim], received ",
                                            vectors.shape().DebugString()));
    HashFamily family;
    OP_REQUIRES_OK(ctx, attributes_.FamilyUnread(vectors.dim_size(1), ctx->input(1), &family));
    GpuScratch scratch;
    OP_REQUIRES_OK(ctx, scratch.Allocate(ctx, cuda::HashScratchBytes(family)));
    const int64_t n = vectors.dim_size(0), num_tables = family.num_tables;
    const float* rows = vectors.flat<float>().data();
    Tensor* output;
    if (kSingleValues) {
      OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 0, {n, num_tables, family.num_hashes}, &output));
      OP_REQUIRES_OK(ctx,
                     FromCuda(cuda::HashValues(family, rows, n, output->flat<int32_t>().data(),
                                               scratch.data(), StreamOf(ctx))));
    } else {
      OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 0, {n, num_tables}, &output));
      const cuda::HashCodes codes{output->flat<int32_t>().data(), num_tables, 1};
      OP_REQUIRES_OK(
          ctx, FromCuda(cuda::HashRows(family, rows, n, codes, scratch.data(), StreamOf(ctx))));
    }
  }

 private:
  HashFamilyAttributes attributes_;
};

REGISTER_KERNEL_BUILDER(Name("LargeoutLshHash").Device(DEVICE_GPU), DenseHashGpuOp<false>);
REGISTER_KERNEL_BUILDER(Name("LargeoutHashValues").Device(DEVICE_GPU), DenseHashGpuOp<true>);

}  // namespace
}  // namespace largeout
