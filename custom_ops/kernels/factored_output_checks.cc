#include "custom_ops/kernels/factored_output_checks.h"

#include <algorithm>

#include "custom_ops/core/base/finite.h"
#include "custom_ops/core/factored_output/factored_output_stabiliser.h"

namespace largeout {
namespace {

using tensorflow::errors::InvalidArgument;

const double* FirstNotFinite(const double* numbers, int64_t size) {
  return std::find_if_not(numbers, numbers + size, [](double x) { return IsFinite(x); });
}

absl::Status CheckSlopes(const double* slopes, int64_t batch, int64_t per_example,
                         const char* name) {
  if (AllFinite(slopes, batch * per_example)) return absl::OkStatus();
  const double* first = FirstNotFinite(slopes, batch * per_example);
  return InvalidArgument(name, " must be finite, but that of example ",
                         (first - slopes) / per_example, " is ", *first,
                         ", and so is the loss: lower the learning rate, or check the targets");
}

}  // namespace

absl::Status CheckFactoredFeatures(const double* features, int64_t batch, int64_t width) {
  for (int64_t example = 0; example < batch; ++example) {
    const double* numbers = features + example * width;
    if (AllFinite(numbers, width)) continue;
    return InvalidArgument("features must be finite, but those of example ", example,
                           " are not: one is ", *FirstNotFinite(numbers, width),
                           ". If they were finite in earlier steps, lower the learning rate of "
                           "the model or of the layer");
  }
  return absl::OkStatus();
}

absl::Status CheckFactoredStep(const FactoredStep& step, int64_t steps, int64_t batch,
                               int64_t num_targets) {
  if (*step.version != steps) {
    return InvalidArgument(
        "the layer's weights changed between its forward and its backward pass, from version ",
        *step.version, " to ", steps,
        ": two of its outputs were trained in one step. Concatenate their inputs and call the "
        "layer once");
  }
  if (!IsFinite(*step.learning_rate) || *step.learning_rate < 0) {
    return InvalidArgument("learning_rate must be a finite number of at least 0, got ",
                           *step.learning_rate);
  }
  TF_RETURN_IF_ERROR(CheckSlopes(step.slopes.by_q, batch, 1, "by_q"));
  TF_RETURN_IF_ERROR(CheckSlopes(step.slopes.by_s, batch, 1, "by_s"));
  return CheckSlopes(step.slopes.by_a, batch, num_targets, "by_a");
}

absl::Status CheckFactoredOutcome(const FactoredOutcome& outcome, double learning_rate,
                                  double min_pivot) {
  if (!(outcome.smallest_pivot >= min_pivot)) {
    return InvalidArgument(
        "a step with learning rate ", learning_rate,
        " would make the layer's weights singular, so it was not applied: a pivot of "
        "I - 2 learning_rate H'H diag(by_q) is ",
        outcome.smallest_pivot, ", but must be at least ", min_pivot,
        ". Lower the learning rate");
  }
  if (outcome.not_finite == nullptr) return absl::OkStatus();
  return InvalidArgument("a step with learning rate ", learning_rate,
                         " would make numbers of the layer's ", outcome.not_finite,
                         " infinite or NaN, so it was not applied. Lower the learning rate");
}

absl::Status CheckFactoredFolds(const tensorflow::Tensor& folds, int64_t width) {
  constexpr int64_t kLeastRows = 1 + 2 * FactoredStabiliser::kMostFolds;
  if (folds.IsInitialized() && folds.dtype() == tensorflow::DT_DOUBLE && folds.dims() == 2 &&
      folds.dim_size(0) >= kLeastRows && folds.dim_size(1) == width + 1) {
    return absl::OkStatus();
  }
  return InvalidArgument("folds must be double [capacity + 1, width + 1] with at least ",
                         kLeastRows, " rows and width ", width, ", got ",
                         tensorflow::DataTypeString(folds.dtype()), " ",
                         folds.shape().DebugString());
}

}  // namespace largeout
