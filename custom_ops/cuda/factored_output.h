// Factored output layers on the GPU, equal to those of core/factored_output/factored_output.h
// up to rounding.
//
// Errors of a batch or of the new state are written to a report. The caller must read the
// report before it writes the new state. Ids out of range are skipped. All arrays are on the
// device; `features` are those of ReadFactoredFeatures.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_FACTORED_OUTPUT_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_FACTORED_OUTPUT_H_

#include <cstdint>

#include "custom_ops/core/factored_output/factored_output.h"
#include "custom_ops/cuda/memory.h"
#include "custom_ops/cuda/row_merge.h"
#include "custom_ops/cuda/stream.h"

namespace largeout {
namespace cuda {

// REQUIRES: all bytes are 0 before the first launch that takes the report.
struct FactoredReport {
  double learning_rate;   // as read by CheckFactoredStep
  double smallest_pivot;  // as in FactoredOutcome
  uint32_t is_unfit;      // not 0 if a check of the input failed
  uint32_t not_finite;  // bit i: new value i (kFactoredValues) has a number that is not finite
  double mixing_squares;  // the sum of the squares of the new U, and of its inverse
  double inverse_squares;
  int64_t steps;      // as read by CheckFactoredStep
  int64_t num_folds;  // before the step
};

// The values that the bits of not_finite stand for.
inline constexpr const char* kFactoredValues[] = {"vectors", "mixing", "inverse",
                                                  "offset",  "total",  "gram"};

// wide [batch, width] = the features [batch, dim], followed by a 1 if width is dim + 1. Sets
// is_unfit if a feature is not finite.
template <class Number>
Status ReadFactoredFeatures(const Number* features, int64_t batch, int64_t dim, int64_t width,
                            double* wide, FactoredReport* report, Stream stream);

// Sets is_unfit if an id is outside of [-1, num_classes).
Status CheckFactoredIds(const FactoredBatch& batch, int64_t num_classes, FactoredReport* report,
                        Stream stream);

// Sets is_unfit if a slope is not finite, the learning rate is negative or not finite, or the
// version differs from the number of steps.
Status CheckFactoredStep(const FactoredBatch& batch, const FactoredSlopes& slopes,
                         const double* learning_rate, const int64_t* version,
                         const int64_t* steps, FactoredReport* report, Stream stream);

// rows: scratch [batch, num_targets, width].
template <class Number>
Status ScoreFactoredOutput(const FactoredState<Number>& state, const FactoredBatch& batch,
                           const FactoredScores& scores, double* rows, Stream stream);

// A step. Its intermediate results stay in the scratch between calls.
template <class Number>
class FactoredStepOnGpu {
 public:
  // num_classes affects only the size of the scratch.
  static int64_t ScratchBytes(const FactoredBatch& batch, int64_t num_classes, int64_t width);

  // scratch: aligned to 256 bytes.
  FactoredStepOnGpu(const FactoredState<Number>& state, const FactoredBatch& batch,
                    const FactoredSlopes& slopes, void* scratch, Stream stream);

  // The gradient as in GradientByFactoredFeatures.
  Status Gradient(int64_t dim, double* by_features);

  // Call after Gradient. Computes the new state in scratch, and reports on it.
  Status Compute(const double* learning_rate, double min_pivot, FactoredReport* report);

  // Call after Compute. Writes the new state, and adds 1 to *steps. It does not fold. REQUIRES:
  // the report shows that the step is not refused.
  Status Write(int64_t* steps);

 private:
  struct Memory {
    double *rows, *target_sums, *products, *by_features;      // for the gradient
    double *scales, *system, *rest, *half, *squares, *stack;  // for matrices
    double *old_sums, *factors;                               // for omega and w_bar
    double *mixing, *inverse, *sums, *gram;                   // the new state
    Number* vectors;
    int32_t* places;  // of the ids in merged.positions
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
