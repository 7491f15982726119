#include "custom_ops/core/log_uniform_distribution.h"
#include "custom_ops/core/sampling.h"
#include "custom_ops/core/uniform_distribution.h"
#include "custom_ops/kernels/closed_form_attributes.h"
#include "custom_ops/kernels/intra_op_parallel.h"
#include "custom_ops/kernels/largeout_op.h"
#include "custom_ops/kernels/sampled_values.h"

namespace largeout {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;

// Distributions that are known in closed form from the number of classes.
template <class Distribution>
class ClosedFormSampleOp : public LargeoutOp {
 public:
  explicit ClosedFormSampleOp(OpKernelConstruction* ctx) : LargeoutOp(ctx) {
    OP_REQUIRES_OK(ctx, attributes_.Read(ctx));
  }

  void Run(OpKernelContext* ctx) override {
    const int64_t num_classes = attributes_.num_classes;
    const int64_t num_sampled = attributes_.num_sampled;
    const bool unique = attributes_.unique;
    PhiloxSeed seed;
    OP_REQUIRES_OK(ctx, ReadSeed(ctx->input(1), &seed));
    OP_REQUIRES_OK(ctx, CheckTrueClasses(ctx->input(0), num_classes));
    const Distribution distribution(num_classes, unique ? num_sampled : 1);
    const auto draw = [&](int64_t* ids) {
      const auto sample =
          unique ? SampleWithoutReplacement<Distribution> : SampleWithReplacement<Distribution>;
      sample(distribution, num_sampled, seed, IntraOpParallel(ctx), ids);
      return tensorflow::OkStatus();
    };
    const float draws = unique ? 1 : num_sampled;
    const auto count = [&](int64_t c) { return draws * LengthInStrata(distribution, c); };
    OP_REQUIRES_OK(ctx, WriteSampledValues(ctx, num_sampled, draw, count));
  }

 private:
  ClosedFormAttributes attributes_;
};

REGISTER_KERNEL_BUILDER(Name("LargeoutUniformSample").Device(tensorflow::DEVICE_CPU),
                        ClosedFormSampleOp<UniformDistribution>);
REGISTER_KERNEL_BUILDER(Name("LargeoutLogUniformSample").Device(tensorflow::DEVICE_CPU),
                        ClosedFormSampleOp<LogUniformDistribution>);

}  // namespace
}  // namespace largeout
