// Shared by the static samplers.

#ifndef LARGEOUT_CUSTOM_OPS_KERNELS_SAMPLED_VALUES_H_
#define LARGEOUT_CUSTOM_OPS_KERNELS_SAMPLED_VALUES_H_

#include "custom_ops/core/base/philox.h"
#include "custom_ops/kernels/checks.h"
#include "custom_ops/kernels/largeout_op.h"

namespace largeout {

// The inputs and outputs of a static sampler. True classes of -1 are padding.
struct SampledArrays {
  const int64_t* true_classes;  // [num_true]
  int64_t num_true;
  int64_t num_sampled;
  int64_t* sampled;      // [num_sampled]
  float* true_count;     // [num_true]
  float* sampled_count;  // [num_sampled]
};

inline PhiloxSeed SeedFrom(const int64_t* words) {
  return {static_cast<uint64_t>(words[0]), static_cast<uint64_t>(words[1])};
}

// Reads inputs true_classes and seed, and allocates the outputs of the op.
inline absl::Status AllocateSampled(tensorflow::OpKernelContext* ctx, int64_t num_sampled,
                                    PhiloxSeed* seed, SampledArrays* arrays) {
  const int64_t* words = nullptr;
  TF_RETURN_IF_ERROR(ReadSeed(ctx->input(1), &words));
  *seed = SeedFrom(words);
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

// Checks the true classes, calls draw(int64_t* ids), which returns a status, and writes
// count(id) for the true classes and the drawn ids. The count of padding is 1. REQUIRES: draw
// gives ids that count accepts.
template <class Draw, class Count>
absl::Status WriteSampledValues(const SampledArrays& arrays, int64_t num_classes,
                                const Draw& draw, const Count& count) {
  TF_RETURN_IF_ERROR(
      CheckClassIds(arrays.true_classes, arrays.num_true, 1, -1, num_classes, "labels"));
  for (int64_t i = 0; i < arrays.num_true; ++i) {
    const int64_t id = arrays.true_classes[i];
    arrays.true_count[i] = id == -1 ? 1.0f : count(id);
  }
  TF_RETURN_IF_ERROR(draw(arrays.sampled));
  for (int64_t i = 0; i < arrays.num_sampled; ++i) {
    arrays.sampled_count[i] = count(arrays.sampled[i]);
  }
  return absl::OkStatus();
}

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_KERNELS_SAMPLED_VALUES_H_
