// Factored output layers on the GPU, equal to those of core/factored_output/factored_output.h
// up to rounding.
//
// What is wrong with a batch, or would be with the new state, stands in a report: whoever
// launches this reads it before the new state is written. Ids out of range are passed over.
// All arrays are on the device; the features are those of ReadFactoredFeatures.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_FACTORED_OUTPUT_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_FACTORED_OUTPUT_H_

#include <cstdint>

#include "custom_ops/core/factored_output/factored_output.h"
#include "custom_ops/cuda/memory.h"
#include "custom_ops/cuda/row_merge.h"
#include "custom_ops/cuda/stream.h"

namespace largeout {
namespace cuda {

// Zeros to begin with.
struct FactoredReport {
  double learning_rate;   // of CheckFactoredStep
  double smallest_pivot;  // as in FactoredOutcome
  uint32_t is_unfit;      // whether a check of the input failed
  uint32_t not_finite;    // bit i: a number of new value i is not finite
  double mixing_squares;  // the sum of the squares of the new U, and of its inverse
  double inverse_squares;
  int64_t steps;      // of CheckFactoredStep
  int64_t num_folds;  // before the step
};

// The values that bits of not_finite stand for.
inline constexpr const char* kFactoredValues[] = {"vectors", "mixing", "inverse",
                                                  "offset",  "total",  "gram"};

// wide [batch, width] = the features [batch, dim], followed by a 1 where width is dim + 1.
// Unfit: numbers that are not finite.
template <class Number>
Status ReadFactoredFeatures(const Number* features, int64_t batch, int64_t dim, int64_t width,
                            double* wide, FactoredReport* report, Stream stream);

// Unfit: ids outside of [-1, num_classes).
Status CheckFactoredIds(const FactoredBatch& batch, int64_t num_classes, FactoredReport* report,
                        Stream stream);

// Unfit: slopes that are not finite, a rate that is negative or not finite, and another version
// than the number of steps.
Status CheckFactoredStep(const FactoredBatch& batch, const FactoredSlopes& slopes,
                         const double* learning_rate, const int64_t* version,
                         const int64_t* steps, FactoredReport* report, Stream stream);

// rows: scratch [batch, num_targets, width].
template <class Number>
Status ScoreFactoredOutput(const FactoredState<Number>& state, const FactoredBatch& batch,
                           const FactoredScores& scores, double* rows, Stream stream);

// A step. What it computes stays in its scratch from one call to the next.
template <class Number>
class FactoredStepOnGpu {
 public:
  // num_classes matters to the scratch alone.
  static int64_t ScratchBytes(const FactoredBatch& batch, int64_t num_classes, int64_t width);

  // scratch: aligned to 256 bytes.
  FactoredStepOnGpu(const FactoredState<Number>& state, const FactoredBatch& batch,
                    const FactoredSlopes& slopes, void* scratch, Stream stream);

  // As GradientByFactoredFeatures has it.
  Status Gradient(int64_t dim, double* by_features);

  // After Gradient: makes the new state, in scratch, and reports on it.
  Status Compute(const double* learning_rate, double min_pivot, FactoredReport* report);

  // After Compute: makes the new state the state, and adds 1 to *steps. It does not fold.
  // REQUIRES: the report is that of a step that is not refused.
  Status Write(int64_t* steps);

 private:
  struct Memory {
    double *rows, *target_sums, *products, *by_features;      // of the gradient
    double *scales, *system, *rest, *half, *squares, *stack;  // of matrices
    double *old_sums, *factors;                               // of omega and w_bar
    double *mixing, *inverse, *sums, *gram;                   // the new state
    Number* vectors;
    int32_t* places;  // of ids in merged.positions
    void *merge, *solve;
  };
  static Memory Take(const FactoredBatch& batch, int64_t num_classes, int64_t width,
                     Scratch* scratch);

  Status ComputeInverse(double min_pivot, double* smallest_pivot);
  Status ComputeMixing();
  Status MergeTargets();
  Status ComputeSquares(const double* learning_rate);
  Status ComputeGram();
  Status ComputeSums(const double* learning_rate);
  Status ComputeVectors(const double* learning_rate, FactoredReport* report);
  Status Report(FactoredReport* report);

  const FactoredState<Number> state_;
  const FactoredBatch batch_;
  const FactoredSlopes slopes_;
  const Stream stream_;
  Memory memory_;
  MergedRows merged_{};
};

}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_FACTORED_OUTPUT_H_
