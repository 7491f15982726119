#include "custom_ops/kernels/factored_output_ops.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "custom_ops/core/finite.h"
#include "custom_ops/kernels/intra_op_parallel.h"

namespace largeout {
namespace {

using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::errors::InvalidArgument;

// The features as the state has them: double, with a 1 appended where there is a bias.
class WideFeatures {
 public:
  explicit WideFeatures(const FactoredOutputInput& in)
      : data_(in.batch() * in.width(), 1.0), batch_(in.batch()), width_(in.width()) {
    if (in.features().dtype() == tensorflow::DT_FLOAT) {
      Copy(in.features().flat<float>().data(), in.dim());
    } else {
      Copy(in.features().flat<double>().data(), in.dim());
    }
  }

  const double* data() const { return data_.data(); }

  absl::Status CheckFinite() const {
    for (int64_t row = 0; row < batch_; ++row) {
      const double* numbers = data() + row * width_;
      if (AllFinite(numbers, width_)) continue;
      return InvalidArgument("features must be finite, but those of row ", row,
                             " are not: one is ", *FirstNotFinite(numbers, width_));
    }
    return absl::OkStatus();
  }

  static const double* FirstNotFinite(const double* numbers, int64_t size) {
    return std::find_if_not(numbers, numbers + size, [](double x) { return IsFinite(x); });
  }

 private:
  template <class Number>
  void Copy(const Number* from, int64_t dim) {
    for (int64_t row = 0; row < batch_; ++row) {
      std::copy_n(from + row * dim, dim, data_.data() + row * width_);
    }
  }

  std::vector<double> data_;
  const int64_t batch_, width_;
};

absl::Status CheckSlopes(const double* slopes, int64_t batch, int64_t per_row,
                         const char* name) {
  if (AllFinite(slopes, batch * per_row)) return absl::OkStatus();
  const double* first = WideFeatures::FirstNotFinite(slopes, batch * per_row);
  return InvalidArgument(name, " must be finite, but that of row ", (first - slopes) / per_row,
                         " is ", *first,
                         ": so is the loss; lower the learning rate, or look at the targets");
}

absl::Status CheckStep(const FactoredOutputInput& in, const FactoredStep& step) {
  if (*step.version != *in.steps()) {
    return InvalidArgument(
        "the layer's weights changed between its forward and its backward pass, from version ",
        *step.version, " to ", *in.steps(),
        ": two outputs of it are trained in one step. Concatenate their inputs and call the "
        "layer once");
  }
  if (!IsFinite(*step.learning_rate) || *step.learning_rate < 0) {
    return InvalidArgument("learning_rate must be a finite number of at least 0, got ",
                           *step.learning_rate);
  }
  TF_RETURN_IF_ERROR(CheckSlopes(step.slopes.by_q, in.batch(), 1, "by_q"));
  TF_RETURN_IF_ERROR(CheckSlopes(step.slopes.by_s, in.batch(), 1, "by_s"));
  return CheckSlopes(step.slopes.by_a, in.batch(), in.num_targets(), "by_a");
}

absl::Status CheckOutcome(const FactoredOutcome& outcome, const FactoredStep& step) {
  if (!(outcome.smallest_pivot >= step.min_pivot)) {
    return InvalidArgument(
        "a step with learning rate ", *step.learning_rate,
        " would make the layer's weights singular, so it was not made: a pivot of "
        "I - 2 learning_rate H'H diag(by_q) is ",
        outcome.smallest_pivot, ", it must be at least ", step.min_pivot,
        ". Lower the learning rate");
  }
  if (outcome.not_finite == nullptr) return absl::OkStatus();
  return InvalidArgument("a step with learning rate ", *step.learning_rate,
                         " would make numbers of the layer's ", outcome.not_finite,
                         " infinite or NaN, so it was not made. Lower the learning rate");
}

struct Cpu {
  static absl::Status Copy(const Tensor& from, Tensor* to) {
    std::memcpy(to->data(), from.data(), from.TotalBytes());
    return absl::OkStatus();
  }

  static absl::Status Score(OpKernelContext* ctx, const FactoredOutputInput& in,
                            const FactoredScores& scores, int64_t* version) {
    TF_RETURN_IF_ERROR(CheckClassIds(in.ids(), -1, in.num_classes(), "ids"));
    const WideFeatures features(in);
    TF_RETURN_IF_ERROR(features.CheckFinite());
    *version = *in.steps();
    return in.WithState([&](const auto& state) {
      ScoreFactoredOutput(state, Batch(in, features), IntraOpParallel(ctx), scores);
      return absl::OkStatus();
    });
  }

  static absl::Status Step(OpKernelContext* ctx, const FactoredOutputInput& in,
                           const FactoredStep& step, double* by_features) {
    TF_RETURN_IF_ERROR(CheckStep(in, step));
    TF_RETURN_IF_ERROR(CheckClassIds(in.ids(), -1, in.num_classes(), "ids"));
    const WideFeatures features(in);
    TF_RETURN_IF_ERROR(features.CheckFinite());
    const FactoredBatch batch = Batch(in, features);
    const ParallelFor parallel = IntraOpParallel(ctx);
    return in.WithState([&](const auto& state) {
      if (!step.update) {
        GradientByFactoredFeatures(state, batch, step.slopes, parallel, in.dim(), by_features);
        return absl::OkStatus();
      }
      const FactoredOutcome outcome =
          StepFactoredOutput(state, batch, step.slopes, *step.learning_rate, step.min_pivot,
                             parallel, in.dim(), by_features);
      TF_RETURN_IF_ERROR(CheckOutcome(outcome, step));
      ++*in.steps();
      return absl::OkStatus();
    });
  }

 private:
  static FactoredBatch Batch(const FactoredOutputInput& in, const WideFeatures& features) {
    return {features.data(), in.ids().flat<int64_t>().data(), in.batch(), in.num_targets()};
  }
};

LARGEOUT_REGISTER_FACTORED_OUTPUT_OPS(tensorflow::DEVICE_CPU, Cpu);

}  // namespace
}  // namespace largeout
