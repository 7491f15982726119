#include <type_traits>

#include "custom_ops/cuda/sampling.h"
#include "custom_ops/kernels/gpu_context.h"
#include "custom_ops/kernels/sampling_ops.h"

namespace largeout {
namespace {

struct GpuSampling {
  using SampledArrays = cuda::SampledArrays;

  template <class Distribution>
  static absl::Status Sample(tensorflow::OpKernelContext* ctx,
                             const ClosedFormAttributes& attributes, const int64_t* seed,
                             const SampledArrays& arrays) {
    constexpr auto kSample = std::is_same_v<Distribution, UniformDistribution>
                                 ? cuda::UniformSample
                                 : cuda::LogUniformSample;
    GpuScratch scratch;
    TF_RETURN_IF_ERROR(scratch.Allocate(
        ctx, attributes.unique ? cuda::UniqueSampleScratchBytes(arrays.num_sampled) : 0));
    return FromCuda(kSample(arrays, attributes.num_classes, attributes.unique, seed,
                            scratch.data(), StreamOf(ctx)));
  }
};

LARGEOUT_REGISTER_SAMPLING_OPS(GpuDeviceType(), GpuSampling);

}  // namespace
}  // namespace largeout
