#include "custom_ops/kernels/sampling_ops.h"

#include "custom_ops/core/sampling/sampling.h"
#include "custom_ops/kernels/intra_op_parallel.h"
#include "custom_ops/kernels/sampled_values.h"

namespace largeout {
namespace {

struct CpuSampling {
  using SampledArrays = largeout::SampledArrays;

  template <class Distribution>
  static absl::Status Sample(tensorflow::OpKernelContext* ctx,
                             const ClosedFormAttributes& attributes, const int64_t* seed,
                             const SampledArrays& arrays) {
    const bool unique = attributes.unique;
    const int64_t num_sampled = attributes.num_sampled;
    const Distribution distribution(attributes.num_classes, unique ? num_sampled : 1);
    const auto draw = [&](int64_t* ids) {
      const auto sample =
          unique ? SampleWithoutReplacement<Distribution> : SampleWithReplacement<Distribution>;
      sample(distribution, num_sampled, SeedFrom(seed), IntraOpParallel(ctx), ids);
      return absl::OkStatus();
    };
    const float draws = unique ? 1 : num_sampled;
    const auto count = [&](int64_t c) { return draws * LengthInStrata(distribution, c); };
    return WriteSampledValues(arrays, attributes.num_classes, draw, count);
  }
};

LARGEOUT_REGISTER_SAMPLING_OPS(tensorflow::DEVICE_CPU, CpuSampling);

}  // namespace
}  // namespace largeout
