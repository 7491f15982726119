#include "custom_ops/core/base/rounding.h"
#include "custom_ops/cuda/launch.cuh"
#include "custom_ops/cuda/row_dots.h"
#include "custom_ops/cuda/row_dots_body.h"

namespace largeout {
namespace cuda {

Status RowDots(const ClassMatrix& matrix, const float* features, const OwnClasses& own,
               float* logits, Stream stream) {
  const int64_t blocks = CeilDiv(own.size(), kDotsPerBlock);
  if (AlignedForFour(matrix.embeddings, matrix.dim) && AlignedForFour(features, matrix.dim)) {
    using Body = RowDotsBody<true>;
    return ForEachBlock(blocks, kRowDotThreads, Body::kSharedBytes,
                        Body{matrix, features, own, logits}, stream);
  }
  using Body = RowDotsBody<false>;
  return ForEachBlock(blocks, kRowDotThreads, Body::kSharedBytes,
                      Body{matrix, features, own, logits}, stream);
}

Status GatherRows(const ClassMatrix& matrix, const SharedClasses& shared, float* rows,
                  float* biases, Stream stream) {
  return ForEachBlock(CeilDiv(shared.size, kGathersPerBlock), kRowDotThreads, 0,
                      GatherRowsBody{matrix, shared, rows, biases}, stream);
}

Status RowDotsFeatureGradient(const ClassMatrix& matrix, const OwnClasses& own,
                              const float* d_logits, float* d_features, Stream stream) {
  const FeatureGradientBody body{matrix, own, d_logits, d_features,
                                 GradientColumns(matrix.dim)};
  return ForEachBlock(own.batch, kRowDotThreads, FeatureGradientBody::kSharedBytes, body,
                      stream);
}

}  // namespace cuda
}  // namespace largeout
