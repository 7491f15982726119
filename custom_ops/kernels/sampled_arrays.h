// What the GPU kernels of all static samplers share.

#ifndef LARGEOUT_CUSTOM_OPS_KERNELS_SAMPLED_ARRAYS_H_
#define LARGEOUT_CUSTOM_OPS_KERNELS_SAMPLED_ARRAYS_H_

#include "custom_ops/cuda/sampling.h"
#include "custom_ops/kernels/gpu_context.h"
#include "custom_ops/kernels/sampled_values.h"

namespace largeout {

// Checks the seed's shape and allocates the outputs of the op. The labels are looked at on
// the device, where those that are no classes get the count NaN.
inline absl::Status AllocateSampledArrays(tensorflow::OpKernelContext* ctx, int64_t num_sampled,
                                          cuda::SampledArrays* arrays) {
  TF_RETURN_IF_ERROR(CheckSeedShape(ctx->input(1)));
  SampledOutputs outputs;
  TF_RETURN_IF_ERROR(AllocateSampledValues(ctx, num_sampled, &outputs));
  const tensorflow::Tensor& true_classes = ctx->input(0);
  *arrays = {true_classes.flat<int64_t>().data(),
             true_classes.NumElements(),
             num_sampled,
             outputs.sampled->flat<int64_t>().data(),
             outputs.true_count->flat<float>().data(),
             outputs.sampled_count->flat<float>().data()};
  return absl::OkStatus();
}

// The seed tensor, in device memory.
inline const int64_t* SeedOf(tensorflow::OpKernelContext* ctx) {
  return ctx->input(1).flat<int64_t>().data();
}

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_KERNELS_SAMPLED_ARRAYS_H_
