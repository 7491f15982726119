#include "custom_ops/core/log_uniform_distribution.h"
#include "custom_ops/core/sampling.h"
#include "custom_ops/core/uniform_distribution.h"
#include "custom_ops/kernels/intra_op_parallel.h"
#include "custom_ops/kernels/sampled_values.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace largeout {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;

// Distributions that are known in closed form from the number of classes.
template <class Distribution>
class ClosedFormSampleOp : public OpKernel {
 public:
  explicit ClosedFormSampleOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    constexpr int64_t kMaxClasses = int64_t{1} << 31;
    OP_REQUIRES_OK(ctx, ctx->GetAttr("num_classes", &num_classes_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("num_sampled", &num_sampled_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("unique", &unique_));
    OP_REQUIRES(ctx, num_classes_ <= kMaxClasses,
                tensorflow::errors::InvalidArgument("num_classes must be at most ", kMaxClasses,
                                                    ", received ", num_classes_));
    OP_REQUIRES(ctx, !unique_ || num_sampled_ <= num_classes_,
                tensorflow::errors::InvalidArgument(
                    "unique needs num_sampled <= num_classes, received num_sampled=",
                    num_sampled_, " and num_classes=", num_classes_));
  }

  void Compute(OpKernelContext* ctx) override {
    PhiloxSeed seed;
    OP_REQUIRES_OK(ctx, ReadSeed(ctx->input(1), &seed));
    OP_REQUIRES_OK(ctx, CheckTrueClasses(ctx->input(0), num_classes_));
    const Distribution distribution(num_classes_, unique_ ? num_sampled_ : 1);
    const auto draw = [&](int64_t* ids) {
      const auto sample = unique_ ? SampleWithoutReplacement<Distribution>
                                  : SampleWithReplacement<Distribution>;
      sample(distribution, num_sampled_, seed, IntraOpParallel(ctx), ids);
      return tensorflow::OkStatus();
    };
    const float draws = unique_ ? 1 : num_sampled_;
    const auto count = [&](int64_t c) { return draws * LengthInStrata(distribution, c); };
    OP_REQUIRES_OK(ctx, WriteSampledValues(ctx, num_sampled_, draw, count));
  }

 private:
  int64_t num_classes_;
  int64_t num_sampled_;
  bool unique_;
};

REGISTER_KERNEL_BUILDER(Name("LargeoutUniformSample").Device(tensorflow::DEVICE_CPU),
                        ClosedFormSampleOp<UniformDistribution>);
REGISTER_KERNEL_BUILDER(Name("LargeoutLogUniformSample").Device(tensorflow::DEVICE_CPU),
                        ClosedFormSampleOp<LogUniformDistribution>);

}  // namespace
}  // namespace largeout
