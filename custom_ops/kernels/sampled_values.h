// What the kernels of all static samplers share: reading the seed, checking
// the labels, writing the three outputs.

#ifndef LARGEOUT_CUSTOM_OPS_KERNELS_SAMPLED_VALUES_H_
#define LARGEOUT_CUSTOM_OPS_KERNELS_SAMPLED_VALUES_H_

#include "custom_ops/core/philox.h"
#include "custom_ops/kernels/largeout_op.h"

namespace largeout {

inline tensorflow::Status CheckSeedShape(const tensorflow::Tensor& seed) {
  if (seed.dims() == 1 && seed.dim_size(0) == 2) return tensorflow::OkStatus();
  return tensorflow::errors::InvalidArgument("seed must have shape [2], received ",
                                             seed.shape().DebugString());
}

inline tensorflow::Status ReadSeed(const tensorflow::Tensor& seed, PhiloxSeed* result) {
  TF_RETURN_IF_ERROR(CheckSeedShape(seed));
  const auto words = seed.vec<int64_t>();
  *result = {static_cast<uint64_t>(words(0)), static_cast<uint64_t>(words(1))};
  return tensorflow::OkStatus();
}

inline tensorflow::Status CheckTrueClasses(const tensorflow::Tensor& true_classes,
                                           int64_t num_classes) {
  const auto labels = true_classes.flat<int64_t>();
  for (int64_t i = 0; i < labels.size(); ++i) {
    if (labels(i) < -1 || labels(i) >= num_classes) {
      return tensorflow::errors::InvalidArgument("label ", labels(i), " at flat position ", i,
                                                 " is outside [0, ", num_classes,
                                                 "); only -1 is allowed besides, as padding");
    }
  }
  return tensorflow::OkStatus();
}

struct SampledOutputs {
  tensorflow::Tensor *sampled, *true_count, *sampled_count;
};

inline tensorflow::Status AllocateSampledValues(tensorflow::OpKernelContext* ctx,
                                                int64_t num_sampled, SampledOutputs* outputs) {
  TF_RETURN_IF_ERROR(AllocateOutput(ctx, 0, {num_sampled}, &outputs->sampled));
  TF_RETURN_IF_ERROR(ctx->allocate_output(1, ctx->input(0).shape(), &outputs->true_count));
  return AllocateOutput(ctx, 2, {num_sampled}, &outputs->sampled_count);
}

// Allocates the outputs of the op, calls draw(int64_t* ids), and writes
// count(id) for the true classes and the ids drawn. Padding counts 1.
// REQUIRES: the labels were checked and draw gives ids that count accepts.
template <class Draw, class Count>
tensorflow::Status WriteSampledValues(tensorflow::OpKernelContext* ctx, int64_t num_sampled,
                                      const Draw& draw, const Count& count) {
  SampledOutputs outputs;
  TF_RETURN_IF_ERROR(AllocateSampledValues(ctx, num_sampled, &outputs));
  const auto labels = ctx->input(0).flat<int64_t>();
  auto label_counts = outputs.true_count->flat<float>();
  for (int64_t i = 0; i < labels.size(); ++i) {
    label_counts(i) = labels(i) == -1 ? 1.0f : count(labels(i));
  }
  auto ids = outputs.sampled->vec<int64_t>();
  TF_RETURN_IF_ERROR(draw(ids.data()));
  auto id_counts = outputs.sampled_count->vec<float>();
  for (int64_t i = 0; i < num_sampled; ++i) id_counts(i) = count(ids(i));
  return tensorflow::OkStatus();
}

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_KERNELS_SAMPLED_VALUES_H_
