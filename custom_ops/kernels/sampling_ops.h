// The ops of the static samplers whose distribution has a closed form, for every device.
//
// A Device has SampledArrays (with the members of cuda/sampling.h), and the static function
// Sample<Distribution>(ctx, attributes, seed, arrays), which writes them and returns a status.

#ifndef LARGEOUT_CUSTOM_OPS_KERNELS_SAMPLING_OPS_H_
#define LARGEOUT_CUSTOM_OPS_KERNELS_SAMPLING_OPS_H_

#include "custom_ops/core/sampling/log_uniform_distribution.h"
#include "custom_ops/core/sampling/uniform_distribution.h"
#include "custom_ops/kernels/checks.h"
#include "custom_ops/kernels/largeout_op.h"

namespace largeout {

// Reads inputs true_classes and seed, and allocates the outputs of the op.
template <class SampledArrays>
absl::Status AllocateSampled(tensorflow::OpKernelContext* ctx, int64_t num_sampled,
                             const int64_t** seed, SampledArrays* arrays) {
  TF_RETURN_IF_ERROR(ReadSeed(ctx->input(1), seed));
  const tensorflow::Tensor& true_classes = ctx->input(0);
  tensorflow::Tensor *sampled, *true_count, *sampled_count;
  TF_RETURN_IF_ERROR(AllocateOutput(ctx, 0, {num_sampled}, &sampled));
  TF_RETURN_IF_ERROR(ctx->allocate_output(1, true_classes.shape(), &true_count));
  TF_RETURN_IF_ERROR(AllocateOutput(ctx, 2, {num_sampled}, &sampled_count));
  *arrays = {true_classes.flat<int64_t>().data(),
             true_classes.NumElements(),
             num_sampled,
             sampled->flat<int64_t>().data(),
             true_count->flat<float>().data(),
             sampled_count->flat<float>().data()};
  return absl::OkStatus();
}

struct ClosedFormAttributes {
  int64_t num_classes;
  int64_t num_sampled;
  bool unique;

  absl::Status Read(tensorflow::OpKernelConstruction* ctx) {
    constexpr int64_t kMaxClasses = int64_t{1} << 31;
    TF_RETURN_IF_ERROR(ctx->GetAttr("num_classes", &num_classes));
    TF_RETURN_IF_ERROR(ReadCount(ctx, "num_sampled", &num_sampled));
    TF_RETURN_IF_ERROR(ctx->GetAttr("unique", &unique));
    if (num_classes > kMaxClasses) {
      return tensorflow::errors::InvalidArgument("num_classes must be at most ", kMaxClasses,
                                                 ", received ", num_classes);
    }
    if (unique && num_sampled > num_classes) {
      return tensorflow::errors::InvalidArgument(
          "num_sampled must be at most num_classes if unique is true, received num_sampled=",
          num_sampled, " and num_classes=", num_classes);
    }
    return absl::OkStatus();
  }
};

// Distributions in closed form, which depend only on the number of classes.
template <class Device, class Distribution>
class ClosedFormSampleOp : public LargeoutOp {
 public:
  explicit ClosedFormSampleOp(tensorflow::OpKernelConstruction* ctx) : LargeoutOp(ctx) {
    OP_REQUIRES_OK(ctx, attributes_.Read(ctx));
  }

  void Run(tensorflow::OpKernelContext* ctx) override {
    const int64_t* seed = nullptr;
    typename Device::SampledArrays arrays{};
    OP_REQUIRES_OK(ctx, AllocateSampled(ctx, attributes_.num_sampled, &seed, &arrays));
    OP_REQUIRES_OK(ctx, Device::template Sample<Distribution>(ctx, attributes_, seed, arrays));
  }

 private:
  ClosedFormAttributes attributes_;
};

// Registers the ops with a Device for the TensorFlow device `name`.
#define LARGEOUT_REGISTER_SAMPLING_OPS(name, Functions)                        \
  REGISTER_KERNEL_BUILDER(Name("LargeoutUniformSample").Device(name),          \
                          ClosedFormSampleOp<Functions, UniformDistribution>); \
  REGISTER_KERNEL_BUILDER(Name("LargeoutLogUniformSample").Device(name),       \
                          ClosedFormSampleOp<Functions, LogUniformDistribution>)

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_KERNELS_SAMPLING_OPS_H_
