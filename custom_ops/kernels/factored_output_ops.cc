#include "custom_ops/kernels/factored_output_ops.h"

#include <algorithm>

#include "custom_ops/core/base/aligned_array.h"
#include "custom_ops/core/factored_output/factored_output_stabiliser.h"
#include "custom_ops/kernels/intra_op_parallel.h"

namespace largeout {
namespace {

using tensorflow::OpKernelContext;
using tensorflow::Tensor;

// The features in the form of the state: double, with a 1 appended if there is a bias.
class WideFeatures {
 public:
  explicit WideFeatures(const FactoredOutputInput& in)
      : data_(in.batch() * in.width()), batch_(in.batch()), width_(in.width()) {
    if (in.features().dtype() == tensorflow::DT_FLOAT) {
      Copy(in.features().flat<float>().data(), in.dim());
    } else {
      Copy(in.features().flat<double>().data(), in.dim());
    }
  }

  const double* data() const { return data_.get(); }

 private:
  template <class Number>
  void Copy(const Number* from, int64_t dim) {
    for (int64_t row = 0; row < batch_; ++row) {
      double* const to = data_.get() + row * width_;
      ConvertRow(from + row * dim, dim, to);
      std::fill(to + dim, to + width_, 1.0);
    }
  }

  AlignedArray<double> data_;
  const int64_t batch_, width_;
};

struct CpuFactoredOutput {
  static constexpr bool kUsesHugePages = true;

  static absl::Status Copy(OpKernelContext*, const Tensor& from, Tensor* to) {
    return CopyOnHost(from, to);
  }

  static absl::Status Score(OpKernelContext* ctx, const FactoredOutputInput& in,
                            const FactoredScores& scores, int64_t* version) {
    TF_RETURN_IF_ERROR(CheckClassIds(in.ids(), -1, in.num_classes(), "ids"));
    const WideFeatures features(in);
    TF_RETURN_IF_ERROR(CheckFactoredFeatures(features.data(), in.batch(), in.width()));
    *version = *in.steps();
    return in.WithState([&](const auto& state) {
      ScoreFactoredOutput(state, Batch(in, features), IntraOpParallel(ctx), scores);
      return absl::OkStatus();
    });
  }

  static absl::Status Step(OpKernelContext* ctx, const FactoredOutputInput& in,
                           const FactoredStep& step, double* by_features) {
    TF_RETURN_IF_ERROR(CheckFactoredStep(step, *in.steps(), in.batch(), in.num_targets()));
    TF_RETURN_IF_ERROR(CheckClassIds(in.ids(), -1, in.num_classes(), "ids"));
    const WideFeatures features(in);
    TF_RETURN_IF_ERROR(CheckFactoredFeatures(features.data(), in.batch(), in.width()));
    const FactoredBatch batch = Batch(in, features);
    const ParallelFor parallel = IntraOpParallel(ctx);
    return in.WithState([&](const auto& state) {
      if (!step.update) {
        GradientByFactoredFeatures(state, batch, step.slopes, parallel, in.dim(), by_features);
        return absl::OkStatus();
      }
      FactoredStabiliser stabiliser(in.width(), (*in.steps() + 1) % kStepsOfAnInverse == 0);
      // Before the step, because it may run out of memory for threads. W does not change.
      if (!state.folds.HasRoomFor(stabiliser.kMostFolds)) TakeAllFolds(state, parallel);
      const FactoredOutcome outcome =
          StepFactoredOutput(state, batch, step.slopes, *step.learning_rate, step.min_pivot,
                             parallel, in.dim(), by_features);
      TF_RETURN_IF_ERROR(CheckFactoredOutcome(outcome, *step.learning_rate, step.min_pivot));
      ++*in.steps();
      stabiliser.Run(state.mixing, state.inverse, state.folds, parallel);
      return absl::OkStatus();
    });
  }

  static absl::Status HasFolds(OpKernelContext*, const double* log, bool* has_folds) {
    *has_folds = *log != 0;
    return absl::OkStatus();
  }

  static absl::Status TakeFolds(OpKernelContext* ctx, const FactoredOutputInput& in) {
    return in.WithState([&](const auto& state) {
      TakeAllFolds(state, IntraOpParallel(ctx));
      return absl::OkStatus();
    });
  }

  template <class Matrix>
  static absl::Status TakeFolds(OpKernelContext* ctx, const FactoredFolds& folds,
                                const uint32_t* seen, Matrix vectors) {
    TakeAllFolds(folds, seen, vectors.dimension(0), IntraOpParallel(ctx), vectors.data());
    return absl::OkStatus();
  }

 private:
  static FactoredBatch Batch(const FactoredOutputInput& in, const WideFeatures& features) {
    return {features.data(), in.ids().flat<int64_t>().data(), in.batch(), in.num_targets()};
  }
};

LARGEOUT_REGISTER_FACTORED_OUTPUT_OPS(tensorflow::DEVICE_CPU, CpuFactoredOutput);

}  // namespace
}  // namespace largeout
