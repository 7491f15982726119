#include "custom_ops/cuda/dense_product.h"
#include "custom_ops/cuda/factored_output.h"
#include "custom_ops/cuda/factored_output_body.h"
#include "custom_ops/cuda/factored_output_folds.h"
#include "custom_ops/cuda/launch.cuh"

namespace largeout {
namespace cuda {
namespace {

// products [batch, width] = the features times a matrix [width, width].
Status MultiplyFeatures(const FactoredBatch& batch, int64_t width,
                        const Strided<double>& matrix, double* products, Stream stream) {
  return Multiply({{batch.batch, width, width},
                   {batch.features, width, 1},
                   matrix,
                   nullptr,
                   products,
                   width},
                  stream);
}

}  // namespace

template <class Number>
Status ReadFactoredFeatures(const Number* features, int64_t batch, int64_t dim, int64_t width,
                            double* wide, FactoredReport* report, Stream stream) {
  return ForEach(batch * width,
                 ReadFeaturesBody<Number>{features, dim, width, wide, &report->is_unfit},
                 stream);
}

Status CheckFactoredIds(const FactoredBatch& batch, int64_t num_classes, FactoredReport* report,
                        Stream stream) {
  return ForEach(batch.batch * batch.num_targets,
                 CheckIdsBody{batch.ids, num_classes, &report->is_unfit}, stream);
}

Status CheckFactoredStep(const FactoredBatch& batch, const FactoredSlopes& slopes,
                         const double* learning_rate, const int64_t* version,
                         const int64_t* steps, FactoredReport* report, Stream stream) {
  uint32_t* const is_unfit = &report->is_unfit;
  const auto check = [&](const double* numbers, int64_t size) {
    return ForEach(size, CheckFiniteBody{numbers, is_unfit}, stream);
  };
  Status status = check(slopes.by_q, batch.batch);
  if (status == kOk) status = check(slopes.by_s, batch.batch);
  if (status == kOk) status = check(slopes.by_a, batch.batch * batch.num_targets);
  if (status != kOk) return status;
  return ForEach(1, CheckScalarsBody{learning_rate, version, steps, report}, stream);
}

template <class Number>
Status ScoreFactoredOutput(const FactoredState<Number>& state, const FactoredBatch& batch,
                           const FactoredScores& scores, double* rows, Stream stream) {
  const int64_t width = state.width;
  const Strided<double> gram = {state.gram, width, 1},
                        mixing_transposed = {state.mixing, 1, width};
  Status status = MultiplyFeatures(batch, width, gram, scores.gram_features, stream);
  if (status == kOk) {
    status = MultiplyFeatures(batch, width, mixing_transposed, scores.mixed_features, stream);
  }
  if (status == kOk) {
    status = CopyRows(state, batch.ids, batch.batch * batch.num_targets, rows, stream);
  }
  if (status != kOk) return status;
  const ScoresBody<Number> body{state, batch, scores, rows};
  return ForEachBlock(body.size(), body.kThreads, body.kSharedBytes, body, stream);
}

#define LARGEOUT_INSTANTIATE(Number)                                                      \
  template Status ReadFactoredFeatures(const Number*, int64_t, int64_t, int64_t, double*, \
                                       FactoredReport*, Stream);                          \
  template Status ScoreFactoredOutput(const FactoredState<Number>&, const FactoredBatch&, \
                                      const FactoredScores&, double*, Stream);
LARGEOUT_INSTANTIATE(float)
LARGEOUT_INSTANTIATE(double)
#undef LARGEOUT_INSTANTIATE

}  // namespace cuda
}  // namespace largeout
