// The ops of the static samplers whose distribution has a closed form.

#include "custom_ops/core/sampling/log_uniform_distribution.h"
#include "custom_ops/core/sampling/sampling.h"
#include "custom_ops/core/sampling/uniform_distribution.h"
#include "custom_ops/kernels/intra_op_parallel.h"
#include "custom_ops/kernels/sampled_values.h"

namespace largeout {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::errors::InvalidArgument;

struct ClosedFormAttributes {
  int64_t num_classes;
  int64_t num_sampled;
  bool unique;

  absl::Status Read(OpKernelConstruction* ctx) {
    constexpr int64_t kMaxClasses = int64_t{1} << 31;
    TF_RETURN_IF_ERROR(ctx->GetAttr("num_classes", &num_classes));
    TF_RETURN_IF_ERROR(ReadCount(ctx, "num_sampled", &num_sampled));
    TF_RETURN_IF_ERROR(ctx->GetAttr("unique", &unique));
    if (num_classes > kMaxClasses) {
      return InvalidArgument("num_classes must be at most ", kMaxClasses, ", received ",
                             num_classes);
    }
    if (unique && num_sampled > num_classes) {
      return InvalidArgument(
          "num_sampled must be at most num_classes if unique is true, received num_sampled=",
          num_sampled, " and num_classes=", num_classes);
    }
    return absl::OkStatus();
  }
};

// A sample from a distribution that depends only on the number of classes.
template <class Distribution>
class ClosedFormSampleOp : public LargeoutOp {
 public:
  explicit ClosedFormSampleOp(OpKernelConstruction* ctx) : LargeoutOp(ctx) {
    OP_REQUIRES_OK(ctx, attributes_.Read(ctx));
  }

  void Run(OpKernelContext* ctx) override {
    const bool unique = attributes_.unique;
    const int64_t num_sampled = attributes_.num_sampled;
    PhiloxSeed seed{};
    SampledArrays arrays{};
    OP_REQUIRES_OK(ctx, AllocateSampled(ctx, num_sampled, &seed, &arrays));
    const Distribution distribution(attributes_.num_classes, unique ? num_sampled : 1);
    const auto draw = [&](int64_t* ids) {
      const auto sample =
          unique ? SampleWithoutReplacement<Distribution> : SampleWithReplacement<Distribution>;
      sample(distribution, num_sampled, seed, IntraOpParallel(ctx), ids);
      return absl::OkStatus();
    };
    const float draws = unique ? 1 : num_sampled;
    const auto count = [&](int64_t c) { return draws * LengthInStrata(distribution, c); };
    OP_REQUIRES_OK(ctx, WriteSampledValues(arrays, attributes_.num_classes, draw, count));
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
