#include <algorithm>
#include <string>
#include <vector>

#include "custom_ops/core/factored_output/factored_output_stabiliser.h"
#include "custom_ops/cuda/check/factored_problem.h"
#include "custom_ops/cuda/factored_output_folds.h"

namespace largeout {
namespace cuda {
namespace check {
namespace {

using Doubles = std::vector<double>;

template <class Number>
constexpr double kTolerance = sizeof(Number) == 4 ? 1e-5 : 1e-12;

template <class Number>
void CheckRows(Run* run, const FactoredProblem<Number>& one, std::vector<int64_t> ids) {
  const int64_t width = one.on_cpu.width;
  Doubles expected;
  const Doubles all = one.on_cpu.Vectors();
  for (const int64_t id : ids) {
    const bool is_class = 0 <= id && id < one.on_cpu.num_classes;
    for (int64_t k = 0; k < width; ++k) {
      expected.push_back(is_class ? all[id * width + k] : 0);
    }
  }
  const auto count = static_cast<int64_t>(ids.size());
  const DeviceArray<int64_t> on_gpu(ids);
  const DeviceArray<double> rows(count * width);
  run->Expect(one.Text("rows"),
              CopyRows(one.state(), on_gpu.data(), count, rows.data(), run->stream()), rows,
              expected, 1e-12);
}

template <class Number>
void CheckAll(Run* run, const FactoredProblem<Number>& one) {
  const Doubles all = one.on_cpu.Vectors();
  const FactoredState<Number> state = one.state();
  const Status taken =
      TakeAllFolds(state.folds, state.seen, state.num_classes, state.vectors, run->stream());
  run->Expect(one.Text("all rows"), taken, one.vectors,
              std::vector<Number>(all.begin(), all.end()), kTolerance<Number>);
  run->Expect(one.Text("seen"), ForgetFolds(state, run->stream()), one.seen,
              std::vector<uint32_t>(state.num_classes));
  run->ExpectNear(one.Text("count"), Doubles{one.log.Get()[0]}, Doubles{0});
}

// Checks what a step reports about folds to the host, and which rows have taken them.
void CheckReport(Run* run) {
  FactoredProblem<double> one({40, 6, 5, 3});
  run->ExpectOk("scores", one.Score(run->stream()));
  using OnGpu = FactoredStepOnGpu<double>;
  const DeviceMemory memory(OnGpu::ScratchBytes(one.batch(), 40, 6));
  OnGpu step(one.state(), one.batch(), one.slopes(), memory.data(), run->stream());
  const DeviceArray<double> rate(Doubles{0.02});
  const DeviceArray<FactoredReport> report(std::vector<FactoredReport>(1));
  const DeviceArray<int64_t> steps(std::vector<int64_t>{0});
  run->ExpectOk("gradient", step.Gradient(6, one.by_features.data()));
  run->ExpectOk("step", step.Compute(rate.data(), 1e-6, report.data()));
  one.on_cpu.Step(0.02);
  const Status written = step.Write(steps.data());
  run->Expect("seen", written, one.seen, one.on_cpu.seen);
  const FactoredReport found = report.Get()[0];
  run->ExpectNear("sums", Doubles{found.mixing_squares, found.inverse_squares},
                  Doubles{SumOfSquares(one.on_cpu.mixing.data(), 36),
                          SumOfSquares(one.on_cpu.inverse.data(), 36)},
                  1e-9);
  run->ExpectNear("folds", std::vector<int64_t>{found.num_folds},
                  std::vector<int64_t>{one.on_cpu.kFolds});
}

template <class Number>
void CheckSize(Run* run, const FactoredSize& size) {
  const FactoredProblem<Number> one(size);
  CheckRows<Number>(run, one, {0, size.num_classes - 1, -1, size.num_classes, 0, INT64_MIN});
  CheckAll(run, one);
}

void CheckFolds(Run* run) {
  for (const FactoredSize& size : kFactoredSizes) {
    CheckSize<float>(run, size);
    CheckSize<double>(run, size);
  }
  CheckReport(run);
}

const bool registered = Register("FactoredOutputFolds", CheckFolds);

}  // namespace
}  // namespace check
}  // namespace cuda
}  // namespace largeout
