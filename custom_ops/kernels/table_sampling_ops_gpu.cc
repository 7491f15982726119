#include "custom_ops/kernels/largeout_op.h"
#include "custom_ops/kernels/sampled_arrays.h"
#include "custom_ops/kernels/table_sampling_input.h"

namespace largeout {
namespace {

using tensorflow::DEVICE_GPU;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

class AliasSampleGpuOp : public LargeoutOp {
 public:
  explicit AliasSampleGpuOp(OpKernelConstruction* ctx) : LargeoutOp(ctx) {
    OP_REQUIRES_OK(ctx, ReadCount(ctx, "num_sampled", &num_sampled_));
  }

  void Run(OpKernelContext* ctx) override {
    const Tensor &slots = ctx->input(2), &probability = ctx->input(3);
    OP_REQUIRES_OK(ctx, CheckAliasTable(slots, probability));
    cuda::SampledArrays arrays;
    OP_REQUIRES_OK(ctx, AllocateSampledArrays(ctx, num_sampled_, &arrays));
    const auto* table = reinterpret_cast<const AliasSlot*>(slots.matrix<int64_t>().data());
    OP_REQUIRES_OK(ctx, FromCuda(cuda::AliasSample(
                            arrays, table, probability.flat<float>().data(),
                            probability.NumElements(), SeedOf(ctx), StreamOf(ctx))));
  }

 private:
  int64_t num_sampled_;
};

class PivotalSampleGpuOp : public LargeoutOp {
 public:
  explicit PivotalSampleGpuOp(OpKernelConstruction* ctx) : LargeoutOp(ctx) {
    OP_REQUIRES_OK(ctx, ReadCount(ctx, "num_sampled", &num_sampled_));
  }

  void Run(OpKernelContext* ctx) override {
    const Tensor &cumulative = ctx->input(2), &index = ctx->input(3);
    OP_REQUIRES_OK(ctx, CheckPivotalTable(cumulative, index));
    cuda::SampledArrays arrays;
    OP_REQUIRES_OK(ctx, AllocateSampledArrays(ctx, num_sampled_, &arrays));
    GpuScratch scratch;
    OP_REQUIRES_OK(ctx, scratch.Allocate(ctx, cuda::UniqueSampleScratchBytes(num_sampled_)));
    OP_REQUIRES_OK(
        ctx, FromCuda(cuda::PivotalSample(arrays, cumulative.flat<int64_t>().data(),
                                          cumulative.NumElements() - 1,
                                          index.flat<int64_t>().data(), index.NumElements() - 1,
                                          SeedOf(ctx), scratch.data(), StreamOf(ctx))));
  }

 private:
  int64_t num_sampled_;
};

REGISTER_KERNEL_BUILDER(Name("LargeoutAliasSample").Device(DEVICE_GPU), AliasSampleGpuOp);
REGISTER_KERNEL_BUILDER(Name("LargeoutPivotalSample").Device(DEVICE_GPU), PivotalSampleGpuOp);

}  // namespace
}  // namespace largeout
