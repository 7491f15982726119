#include "custom_ops/cuda/class_gradient_body.h"
#include "custom_ops/cuda/class_scan.h"
#include "custom_ops/cuda/launch.cuh"
#include "custom_ops/cuda/memory.h"

namespace largeout {
namespace cuda {
namespace {

struct Parts {
  float* features;    // [batch, dim]
  float* d_features;  // [shards, batch, dim]
};

Parts CutParts(int64_t shards, int64_t batch, int64_t dim, Scratch* cutter) {
  float* const features = cutter->Take<float>(batch * dim);
  return {features, cutter->Take<float>(shards * batch * dim)};
}

template <int Together, class Use>
auto WithGradientFor(int64_t batch, const Use& use) {
  return batch <= kLargestLowGradient ? use(LowGradient<Together>())
                                      : use(WideGradient<Together>());
}

// Uses kernels that read four numbers at a time if all rows are aligned for it: those of the
// matrix, of its gradient, and of the copied features, which come first in the scratch.
template <class Use>
auto WithGradientFor(const ClassMatrix& matrix, int64_t batch, const void* scratch,
                     const float* d_embeddings, const Use& use) {
  const bool by_fours = AlignedForFour(matrix.embeddings, matrix.dim) &&
                        AlignedForFour(d_embeddings, matrix.dim) &&
                        AlignedForFour(static_cast<const float*>(scratch), matrix.dim);
  return by_fours ? WithGradientFor<4>(batch, use) : WithGradientFor<1>(batch, use);
}

template <class Body>
Status Launch(const Body& body, Stream stream) {
  return ForEachBlock(body.plan.blocks(), Body::Shape::kThreads, Body::kSharedBytes, body,
                      stream);
}

// The gradient of an empty batch is 0.
Status Clear(const ClassMatrix& matrix, float* d_embeddings, float* d_bias, Stream stream) {
  const Status status = FillBytes(0, matrix.num_classes * matrix.dim * 4, d_embeddings, stream);
  if (status != kOk || d_bias == nullptr) return status;
  return FillBytes(0, matrix.num_classes * 4, d_bias, stream);
}

}  // namespace

int64_t ClassSoftmaxGradientScratchBytes(int64_t batch, int64_t num_classes, int64_t dim) {
  const int64_t shards = WithGradientFor<1>(batch, [&](auto kind) {
    return PlanOfRows<typename decltype(kind)::OfRows>(batch, num_classes).shards;
  });
  Scratch counter(nullptr);
  CutParts(shards, batch, dim, &counter);
  return counter.bytes();
}

Status ClassSoftmaxGradient(const ClassMatrix& matrix, const Features& features,
                            const Labels& labels, const ScanWeights& weights, void* scratch,
                            float* d_features, float* d_embeddings, float* d_bias,
                            Stream stream) {
  const int64_t batch = features.batch, num_classes = matrix.num_classes, dim = matrix.dim;
  if (batch == 0) return Clear(matrix, d_embeddings, d_bias, stream);
  return WithGradientFor(matrix, batch, scratch, d_embeddings, [&](auto kind) {
    using OfRows = typename decltype(kind)::OfRows;
    using OfClasses = typename decltype(kind)::OfClasses;
    const ScanPlan plan = PlanOfRows<OfRows>(batch, num_classes);
    Scratch cutter(scratch);
    const Parts parts = CutParts(plan.shards, batch, dim, &cutter);
    const GradientBatch all{features, labels, weights};
    const GradientBatch in{{parts.features, batch}, labels, weights};

    Status status =
        ForEachBlock(CeilDiv(batch, kCopiesPerBlock), kCopyThreads, 0,
                     CopyFeaturesBody{all, num_classes, dim, parts.features}, stream);
    if (status != kOk) return status;
    status = Launch(OfClasses{matrix, in, PlanOfClasses<OfClasses>(batch, num_classes),
                              d_embeddings, d_bias},
                    stream);
    if (status != kOk) return status;
    status = Launch(OfRows{matrix, in, plan, parts.d_features, nullptr}, stream);
    if (status != kOk) return status;
    return ForEach(batch * dim,
                   AddShardsBody{parts.d_features, plan.shards, batch * dim, d_features},
                   stream);
  });
}

}  // namespace cuda
}  // namespace largeout
