#include <vector>

#include "custom_ops/core/factored_output/factored_output_stabiliser.h"
#include "custom_ops/cuda/factored_output.h"
#include "custom_ops/cuda/factored_output_folds.h"
#include "custom_ops/kernels/factored_output_ops.h"
#include "custom_ops/kernels/gpu_context.h"

namespace largeout {
namespace {

using cuda::FactoredReport;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

// The batch in device memory in the form of the launchers, and what they report about it.
class ReadBatch {
 public:
  ReadBatch(OpKernelContext* ctx, const FactoredOutputInput& in) : ctx_(ctx), in_(in) {}

  // Queues the conversion and the checks.
  absl::Status Queue() {
    const int64_t size = in_.batch() * in_.width();
    TF_RETURN_IF_ERROR(wide_.Allocate(ctx_, size * static_cast<int64_t>(sizeof(double))));
    TF_RETURN_IF_ERROR(report_.Allocate(ctx_, sizeof(FactoredReport)));
    TF_RETURN_IF_ERROR(
        FromCuda(cuda::FillBytes(0, sizeof(FactoredReport), report(), StreamOf(ctx_))));
    TF_RETURN_IF_ERROR(FromCuda(in_.features().dtype() == tensorflow::DT_FLOAT
                                    ? ReadFeatures<float>()
                                    : ReadFeatures<double>()));
    return FromCuda(
        cuda::CheckFactoredIds(batch(), in_.num_classes(), report(), StreamOf(ctx_)));
  }

  FactoredReport* report() { return static_cast<FactoredReport*>(report_.data()); }

  FactoredBatch batch() {
    return {wide(), in_.ids().flat<int64_t>().data(), in_.batch(), in_.num_targets()};
  }

  // Waits for the report. step: checked as well, or null. If something is invalid, the host
  // searches for it as on the CPU.
  absl::Status Wait(const FactoredStep* step, FactoredReport* on_host) {
    TF_RETURN_IF_ERROR(CopyToHost(ctx_, report(), 1, on_host));
    if (on_host->is_unfit == 0) return absl::OkStatus();
    if (step != nullptr) TF_RETURN_IF_ERROR(CheckStepOnHost(*step));
    const int64_t num_ids = in_.ids().NumElements();
    std::vector<int64_t> ids;
    TF_RETURN_IF_ERROR(ToHost(in_.ids().flat<int64_t>().data(), num_ids, &ids));
    TF_RETURN_IF_ERROR(
        CheckClassIds(ids.data(), num_ids, in_.num_targets(), -1, in_.num_classes(), "ids"));
    std::vector<double> features;
    TF_RETURN_IF_ERROR(ToHost(wide(), in_.batch() * in_.width(), &features));
    TF_RETURN_IF_ERROR(CheckFactoredFeatures(features.data(), in_.batch(), in_.width()));
    return absl::InternalError("the GPU reported invalid input, but the CPU found none");
  }

 private:
  double* wide() { return static_cast<double*>(wide_.data()); }

  template <class Number>
  cuda::Status ReadFeatures() {
    return cuda::ReadFactoredFeatures(in_.features().flat<Number>().data(), in_.batch(),
                                      in_.dim(), in_.width(), wide(), report(), StreamOf(ctx_));
  }

  template <class Number>
  absl::Status ToHost(const Number* from, int64_t count, std::vector<Number>* to) const {
    to->resize(count);
    return CopyToHost(ctx_, from, count, to->data());
  }

  absl::Status CheckStepOnHost(FactoredStep step) const {
    const int64_t size = in_.batch();
    std::vector<double> by_q, by_s, by_a, rate;
    std::vector<int64_t> version, steps;
    TF_RETURN_IF_ERROR(ToHost(step.slopes.by_q, size, &by_q));
    TF_RETURN_IF_ERROR(ToHost(step.slopes.by_s, size, &by_s));
    TF_RETURN_IF_ERROR(ToHost(step.slopes.by_a, size * in_.num_targets(), &by_a));
    TF_RETURN_IF_ERROR(ToHost(step.learning_rate, 1, &rate));
    TF_RETURN_IF_ERROR(ToHost(step.version, 1, &version));
    TF_RETURN_IF_ERROR(ToHost<int64_t>(in_.steps(), 1, &steps));
    step.slopes = {by_q.data(), by_s.data(), by_a.data(), nullptr, nullptr};
    step.learning_rate = rate.data();
    step.version = version.data();
    return CheckFactoredStep(step, steps[0], size, in_.num_targets());
  }

  OpKernelContext* const ctx_;
  const FactoredOutputInput& in_;
  GpuScratch wide_, report_;
};

// The name of the first value that is not finite, or null.
const char* FirstNotFinite(const FactoredReport& report) {
  int value = 0;
  for (const char* name : cuda::kFactoredValues) {
    if (report.not_finite >> value++ & 1) return name;
  }
  return nullptr;
}

// Makes the folds after a step on the host, as they are few and small.
class FoldsOnHost {
 public:
  FoldsOnHost(int64_t width, const FactoredReport& report)
      : width_(width),
        count_(report.num_folds),
        inverts_((report.steps + 1) % kStepsOfAnInverse == 0),
        is_due_(inverts_ || FactoredStabiliser::IsDue(report.mixing_squares,
                                                      report.inverse_squares, width)),
        stabiliser_(width, inverts_),
        mixing_(is_due_ * width * width),
        inverse_(is_due_ * width * width),
        log_((kMostFolds + 1) * (width + 1)) {}

  bool is_due() const { return is_due_; }

  // If it returns false, all folds must be applied.
  bool HaveRoom(const FactoredFolds& folds) {
    if (count_ + kMostFolds <= folds.capacity) return true;
    count_ = 0;
    return false;
  }

  template <class Number>
  absl::Status Run(OpKernelContext* ctx, const FactoredState<Number>& state) {
    TF_RETURN_IF_ERROR(CopyToHost(ctx, state.mixing, width_ * width_, mixing_.data()));
    TF_RETURN_IF_ERROR(CopyToHost(ctx, state.inverse, width_ * width_, inverse_.data()));
    const FactoredFolds folds = {log_.data(), kMostFolds, width_};
    stabiliser_.Run(mixing_.data(), inverse_.data(), folds, SerialFor);
    const int64_t found = folds.count();
    log_[0] = static_cast<double>(count_ + found);
    const auto copy = [&](const double* from, int64_t count, double* to) {
      return FromCuda(cuda::CopyFromHost(from, count * static_cast<int64_t>(sizeof(double)), to,
                                         StreamOf(ctx)));
    };
    TF_RETURN_IF_ERROR(copy(mixing_.data(), width_ * width_, state.mixing));
    TF_RETURN_IF_ERROR(copy(inverse_.data(), width_ * width_, state.inverse));
    TF_RETURN_IF_ERROR(copy(folds.fold(0), found * (width_ + 1), state.folds.fold(count_)));
    return copy(log_.data(), 1, state.folds.log);
  }

 private:
  static constexpr int64_t kMostFolds = FactoredStabiliser::kMostFolds;

  const int64_t width_;
  int64_t count_;  // number of folds
  const bool inverts_, is_due_;
  FactoredStabiliser stabiliser_;
  std::vector<double> mixing_, inverse_, log_;
};

struct GpuFactoredOutput {
  static constexpr bool kUsesHugePages = false;

  static absl::Status Copy(OpKernelContext* ctx, const Tensor& from, Tensor* to) {
    return CopyTensor(ctx, from, to);
  }

  static absl::Status Score(OpKernelContext* ctx, const FactoredOutputInput& in,
                            const FactoredScores& scores, int64_t* version) {
    ReadBatch read(ctx, in);
    TF_RETURN_IF_ERROR(read.Queue());
    TF_RETURN_IF_ERROR(
        FromCuda(cuda::CopyBytes(in.steps(), sizeof(*version), version, StreamOf(ctx))));
    GpuScratch rows;
    const int64_t size = in.ids().NumElements() * in.width();
    TF_RETURN_IF_ERROR(rows.Allocate(ctx, size * static_cast<int64_t>(sizeof(double))));
    TF_RETURN_IF_ERROR(in.WithState([&](const auto& state) {
      return FromCuda(cuda::ScoreFactoredOutput(
          state, read.batch(), scores, static_cast<double*>(rows.data()), StreamOf(ctx)));
    }));
    FactoredReport report;
    return read.Wait(nullptr, &report);
  }

  static absl::Status Step(OpKernelContext* ctx, const FactoredOutputInput& in,
                           const FactoredStep& step, double* by_features) {
    ReadBatch read(ctx, in);
    TF_RETURN_IF_ERROR(read.Queue());
    TF_RETURN_IF_ERROR(FromCuda(
        cuda::CheckFactoredStep(read.batch(), step.slopes, step.learning_rate, step.version,
                                in.steps(), read.report(), StreamOf(ctx))));
    return in.WithState(
        [&](const auto& state) { return StepOf(ctx, in, state, step, &read, by_features); });
  }

  static absl::Status HasFolds(OpKernelContext* ctx, const double* log, bool* has_folds) {
    double count = 0;
    TF_RETURN_IF_ERROR(CopyToHost(ctx, log, 1, &count));
    *has_folds = count != 0;
    return absl::OkStatus();
  }

  static absl::Status TakeFolds(OpKernelContext* ctx, const FactoredOutputInput& in) {
    return in.WithState([&](const auto& state) { return TakeFoldsOf(ctx, state); });
  }

  template <class Matrix>
  static absl::Status TakeFolds(OpKernelContext* ctx, const FactoredFolds& folds,
                                const uint32_t* seen, Matrix vectors) {
    return FromCuda(
        cuda::TakeAllFolds(folds, seen, vectors.dimension(0), vectors.data(), StreamOf(ctx)));
  }

 private:
  template <class Number>
  static absl::Status TakeFoldsOf(OpKernelContext* ctx, const FactoredState<Number>& state) {
    TF_RETURN_IF_ERROR(FromCuda(cuda::TakeAllFolds(state.folds, state.seen, state.num_classes,
                                                   state.vectors, StreamOf(ctx))));
    return FromCuda(cuda::ForgetFolds(state, StreamOf(ctx)));
  }

  // It waits only once, before the first write. After it, no error can occur.
  template <class Number>
  static absl::Status StepOf(OpKernelContext* ctx, const FactoredOutputInput& in,
                             const FactoredState<Number>& state, const FactoredStep& step,
                             ReadBatch* read, double* by_features) {
    using OnGpu = cuda::FactoredStepOnGpu<Number>;
    GpuScratch scratch;
    TF_RETURN_IF_ERROR(scratch.Allocate(
        ctx, OnGpu::ScratchBytes(read->batch(), in.num_classes(), in.width())));
    OnGpu on_gpu(state, read->batch(), step.slopes, scratch.data(), StreamOf(ctx));
    TF_RETURN_IF_ERROR(FromCuda(on_gpu.Gradient(in.dim(), by_features)));
    if (step.update) {
      TF_RETURN_IF_ERROR(
          FromCuda(on_gpu.Compute(step.learning_rate, step.min_pivot, read->report())));
    }
    FactoredReport report;
    TF_RETURN_IF_ERROR(read->Wait(&step, &report));
    if (!step.update) return absl::OkStatus();
    TF_RETURN_IF_ERROR(CheckFactoredOutcome({report.smallest_pivot, FirstNotFinite(report)},
                                            report.learning_rate, step.min_pivot));
    FoldsOnHost folds(in.width(), report);
    if (!folds.HaveRoom(state.folds)) TF_RETURN_IF_ERROR(TakeFoldsOf(ctx, state));
    TF_RETURN_IF_ERROR(FromCuda(on_gpu.Write(in.steps())));
    return folds.is_due() ? folds.Run(ctx, state) : absl::OkStatus();
  }
};

LARGEOUT_REGISTER_FACTORED_OUTPUT_OPS(GpuDeviceType(), GpuFactoredOutput);

}  // namespace
}  // namespace largeout
