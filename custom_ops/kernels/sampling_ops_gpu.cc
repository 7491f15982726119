#include "custom_ops/kernels/closed_form_attributes.h"
#include "custom_ops/kernels/largeout_op.h"
#include "custom_ops/kernels/sampled_arrays.h"

namespace largeout {
namespace {

using tensorflow::DEVICE_GPU;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;

template <decltype(&cuda::UniformSample) kSample>
class ClosedFormSampleGpuOp : public LargeoutOp {
 public:
  explicit ClosedFormSampleGpuOp(OpKernelConstruction* ctx) : LargeoutOp(ctx) {
    OP_REQUIRES_OK(ctx, attributes_.Read(ctx));
  }

  void Run(OpKernelContext* ctx) override {
    cuda::SampledArrays arrays;
    OP_REQUIRES_OK(ctx, AllocateSampledArrays(ctx, attributes_.num_sampled, &arrays));
    const int64_t scratch_bytes =
        attributes_.unique ? cuda::UniqueSampleScratchBytes(attributes_.num_sampled) : 0;
    GpuScratch scratch;
    OP_REQUIRES_OK(ctx, scratch.Allocate(ctx, scratch_bytes));
    OP_REQUIRES_OK(ctx, FromCuda(kSample(arrays, attributes_.num_classes, attributes_.unique,
                                         SeedOf(ctx), scratch.data(), StreamOf(ctx))));
  }

 private:
  ClosedFormAttributes attributes_;
};

REGISTER_KERNEL_BUILDER(Name("LargeoutUniformSample").Device(DEVICE_GPU),
                        ClosedFormSampleGpuOp<cuda::UniformSample>);
REGISTER_KERNEL_BUILDER(Name("LargeoutLogUniformSample").Device(DEVICE_GPU),
                        ClosedFormSampleGpuOp<cuda::LogUniformSample>);

}  // namespace
}  // namespace largeout
