// Checks of the values that the ops on a factored output layer receive, and of the resulting
// step. All values are in host memory.

#ifndef LARGEOUT_CUSTOM_OPS_KERNELS_FACTORED_OUTPUT_CHECKS_H_
#define LARGEOUT_CUSTOM_OPS_KERNELS_FACTORED_OUTPUT_CHECKS_H_

#include <cstdint>

#include "custom_ops/core/factored_output/factored_output.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace largeout {

// After this many steps the inverse of U is recomputed.
inline constexpr int64_t kStepsOfAnInverse = 256;

// The inputs of a step other than the state and the batch.
struct FactoredStep {
  FactoredSlopes slopes;
  const int64_t* version;
  const double* learning_rate;
  double min_pivot;
  bool update;
};

// features: [batch, width].
absl::Status CheckFactoredFeatures(const double* features, int64_t batch, int64_t width);

// steps: the state's.
absl::Status CheckFactoredStep(const FactoredStep& step, int64_t steps, int64_t batch,
                               int64_t num_targets);

absl::Status CheckFactoredOutcome(const FactoredOutcome& outcome, double learning_rate,
                                  double min_pivot);

// folds: a variable, or its value.
absl::Status CheckFactoredFolds(const tensorflow::Tensor& folds, int64_t width);

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_KERNELS_FACTORED_OUTPUT_CHECKS_H_
