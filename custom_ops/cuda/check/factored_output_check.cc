#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "custom_ops/cuda/check/factored_problem.h"
#include "custom_ops/cuda/factored_output.h"

namespace largeout {
namespace cuda {
namespace check {
namespace {

using Doubles = std::vector<double>;
using Ids = std::vector<int64_t>;

// If V is float, the CPU multiplies floats but the GPU multiplies doubles.
constexpr double kTolerance = 1e-9, kFloatTolerance = 1e-5;
template <class Number>
constexpr double kToleranceOf = sizeof(Number) == 4 ? kFloatTolerance : kTolerance;
constexpr double kRate = 0.02, kMinPivot = 1e-6;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// A step on the GPU, up to its report.
template <class Number>
struct Step {
  explicit Step(const FactoredProblem<Number>& problem, double learning_rate, Stream stream)
      : memory(Bytes(problem)),
        rate(Doubles{learning_rate}),
        report(std::vector<FactoredReport>(1)),
        step(problem.state(), problem.batch(), problem.slopes(), memory.data(), stream),
        stream(stream) {}

  static int64_t Bytes(const FactoredProblem<Number>& problem) {
    return FactoredStepOnGpu<Number>::ScratchBytes(problem.batch(), problem.on_cpu.num_classes,
                                                   problem.on_cpu.width);
  }

  Status Compute(int64_t dim, double* by_features) {
    const Status status = step.Gradient(dim, by_features);
    return status == kOk ? step.Compute(rate.data(), kMinPivot, report.data()) : status;
  }

  DeviceMemory memory;
  DeviceArray<double> rate;
  DeviceArray<FactoredReport> report;
  FactoredStepOnGpu<Number> step;
  Stream stream;
};

template <class Number>
void CheckScoresOf(Run* run, const FactoredSize& size) {
  FactoredProblem<Number> one(size);
  one.on_cpu.Score(SerialFor);
  const Status launched = one.Score(run->stream());
  run->Expect(one.Text("q"), launched, one.q, one.on_cpu.q, kToleranceOf<Number>);
  run->Expect(one.Text("s"), launched, one.s, one.on_cpu.s, kToleranceOf<Number>);
  run->Expect(one.Text("a"), launched, one.a, one.on_cpu.a, kToleranceOf<Number>);
  run->Expect(one.Text("gram"), launched, one.gram_features, one.on_cpu.gram_features,
              kToleranceOf<Number>);
  run->Expect(one.Text("mixed"), launched, one.mixed_features, one.on_cpu.mixed_features,
              kToleranceOf<Number>);
}

template <class Number>
void CheckStepOf(Run* run, const FactoredSize& size) {
  FactoredProblem<Number> one(size);
  run->ExpectOk(one.Text("scores"), one.Score(run->stream()));
  Step<Number> step(one, kRate, run->stream());
  const Status computed = step.Compute(size.width, one.by_features.data());
  const FactoredOutcome outcome = one.on_cpu.Step(kRate);
  run->Expect(one.Text("by_features"), computed, one.by_features, one.on_cpu.by_features,
              kToleranceOf<Number>);
  const FactoredReport report = step.report.Get()[0];
  // For a larger batch, the CPU computes the pivots of another matrix.
  if (size.batch > 0 && size.batch <= size.width) {
    run->ExpectNear(one.Text("pivot"), Doubles{report.smallest_pivot},
                    Doubles{outcome.smallest_pivot}, kToleranceOf<Number>);
  }
  run->ExpectNear(one.Text("flags"), Ids{report.not_finite}, Ids{0});
  const DeviceArray<int64_t> steps(Ids{6});
  run->Expect(one.Text("steps"), step.step.Write(steps.data()), steps, Ids{7});
  run->Expect(one.Text("vectors"), kOk, one.vectors, one.on_cpu.vectors, kToleranceOf<Number>);
  run->Expect(one.Text("mixing"), kOk, one.mixing, one.on_cpu.mixing, kToleranceOf<Number>);
  run->Expect(one.Text("inverse"), kOk, one.inverse, one.on_cpu.inverse, kToleranceOf<Number>);
  run->Expect(one.Text("offset"), kOk, one.offset, one.on_cpu.offset, kToleranceOf<Number>);
  run->Expect(one.Text("total"), kOk, one.total, one.on_cpu.total, kToleranceOf<Number>);
  run->Expect(one.Text("gram"), kOk, one.gram, one.on_cpu.gram, kToleranceOf<Number>);
  const Doubles gram = one.gram.Get();
  Doubles transposed = gram;
  for (int64_t i = 0; i < size.width * size.width; ++i) {
    transposed[i] = gram[i % size.width * size.width + i / size.width];
  }
  run->ExpectNear(one.Text("symmetry"), gram, transposed);
}

// Only the first columns of the gradient, for a layer with a bias.
void CheckDim(Run* run) {
  FactoredProblem<float> one({40, 6, 17, 3});
  run->ExpectOk("scores", one.Score(run->stream()));
  Step<float> step(one, kRate, run->stream());
  const DeviceArray<double> by_features(17 * 5);
  const Status launched = step.step.Gradient(5, by_features.data());
  one.on_cpu.Step(kRate);
  Doubles expected;
  for (int64_t i = 0; i < 17 * 6; ++i) {
    if (i % 6 < 5) expected.push_back(one.on_cpu.by_features[i]);
  }
  run->Expect("dim=5", launched, by_features, expected, kFloatTolerance);
}

// Compares the report on a step at this learning rate with the CPU's outcome.
FactoredReport ReportOn(Run* run, const std::string& what, FactoredProblem<double>* problem,
                        double learning_rate, FactoredOutcome* outcome) {
  problem->CopyInput();
  run->ExpectOk(what + " scores", problem->Score(run->stream()));
  Step<double> step(*problem, learning_rate, run->stream());
  run->ExpectOk(what, step.Compute(problem->on_cpu.width, problem->by_features.data()));
  *outcome = problem->on_cpu.Step(learning_rate);
  return step.report.Get()[0];
}

void CheckRefused(Run* run) {
  FactoredOutcome outcome;
  FactoredProblem<double> singular({40, 6, 1, 3});
  double square = 0;
  for (const double number : singular.on_cpu.features) square += number * number;
  singular.on_cpu.by_q[0] = 1 / (2 * kRate * square);
  FactoredReport report = ReportOn(run, "singular", &singular, kRate, &outcome);
  run->ExpectNear("singular, pivot", Doubles{report.smallest_pivot},
                  Doubles{outcome.smallest_pivot}, 1e-12);
  FactoredProblem<double> infinite({40, 6, 5, 3});
  infinite.on_cpu.offset[2] = std::numeric_limits<double>::max();
  infinite.on_cpu.by_s[0] = -std::numeric_limits<double>::max();
  report = ReportOn(run, "infinite", &infinite, 1e3, &outcome);
  int first = 0;
  while (first < 6 && (report.not_finite >> first & 1) == 0) ++first;
  const std::string found = first < 6 ? kFactoredValues[first] : "none";
  const bool same = outcome.not_finite != nullptr && found == outcome.not_finite;
  run->ExpectNear("infinite: " + found, Ids{same}, Ids{1});
}

void CheckFeatures(Run* run) {
  const std::vector<float> features = {1, 2, 3, 4, NAN, 6};
  const DeviceArray<float> on_gpu(features);
  const DeviceArray<double> wide(9), as_they_are(6);
  const DeviceArray<FactoredReport> report(std::vector<FactoredReport>(1));
  Status read =
      ReadFactoredFeatures(on_gpu.data(), 2, 2, 3, wide.data(), report.data(), run->stream());
  run->ExpectOk("two rows", read);
  Doubles found = wide.Get();
  found.resize(6);
  run->ExpectNear("a 1 after each example", found, Doubles{1, 2, 1, 3, 4, 1});
  run->ExpectNear("finite", Ids{report.Get()[0].is_unfit}, Ids{0});
  read = ReadFactoredFeatures(on_gpu.data(), 2, 3, 3, as_they_are.data(), report.data(),
                              run->stream());
  run->Expect("as they are", read, as_they_are, Doubles{1, 2, 3, 4, NAN, 6});
  run->ExpectNear("a NaN", Ids{report.Get()[0].is_unfit}, Ids{1});
}

// Checks that a problem is reported as unfit after `change` has invalidated it.
template <class Change>
void ExpectUnfit(Run* run, const std::string& what, bool expected, const Change& change) {
  FactoredProblem<double> one({40, 6, 17, 3});
  Ids version = {5};
  Doubles rate = {kRate};
  change(&one.on_cpu, &version[0], &rate[0]);
  one.CopyInput();
  const DeviceArray<int64_t> steps(Ids{5}), gpu_version(version);
  const DeviceArray<double> gpu_rate(rate);
  const DeviceArray<FactoredReport> report(std::vector<FactoredReport>(1));
  run->ExpectOk(what + " ids", CheckFactoredIds(one.batch(), 40, report.data(), run->stream()));
  run->ExpectOk(
      what, CheckFactoredStep(one.batch(), one.slopes(), gpu_rate.data(), gpu_version.data(),
                              steps.data(), report.data(), run->stream()));
  run->ExpectNear(what + ": unfit", Ids{report.Get()[0].is_unfit}, Ids{expected});
  run->ExpectNear(what + ": rate", Doubles{report.Get()[0].learning_rate}, rate);
}

void CheckUnfit(Run* run) {
  using Example = testing::FactoredExample<double>;
  const auto expect = [run](const std::string& what, const auto& change) {
    ExpectUnfit(run, what, true, change);
  };
  ExpectUnfit(run, "nothing", false, [](Example*, int64_t*, double*) {});
  expect("id -2", [](Example* e, int64_t*, double*) { e->ids.back() = -2; });
  expect("id 40", [](Example* e, int64_t*, double*) { e->ids.front() = 40; });
  expect("by_q", [](Example* e, int64_t*, double*) { e->by_q.back() = NAN; });
  expect("by_s", [](Example* e, int64_t*, double*) { e->by_s.back() = kInfinity; });
  expect("by_a", [](Example* e, int64_t*, double*) { e->by_a.back() = -kInfinity; });
  expect("version", [](Example*, int64_t* version, double*) { *version = 4; });
  expect("rate -1", [](Example*, int64_t*, double* rate) { *rate = -1; });
  expect("rate inf", [](Example*, int64_t*, double* rate) { *rate = kInfinity; });
}

// Ids out of range: the GPU reads and writes nothing outside of the layer.
void CheckIdsOutOfRange(Run* run) {
  for (const int64_t bad : {int64_t{-2}, int64_t{40}, INT64_MAX, INT64_MIN}) {
    FactoredProblem<float> one({40, 6, 17, 3}), other({40, 6, 17, 3});
    for (size_t i = 0; i < one.on_cpu.ids.size(); i += 5) {
      one.on_cpu.ids[i] = bad;
      other.on_cpu.ids[i] = -1;
    }
    one.CopyInput();
    run->ExpectOk("scores", one.Score(run->stream()));
    Step<float> step(one, kRate, run->stream());
    const DeviceArray<int64_t> steps(Ids{0});
    run->ExpectOk("step", step.Compute(6, one.by_features.data()));
    const Status written = step.step.Write(steps.data());
    other.on_cpu.Step(kRate);
    const std::string text = "bad=" + std::to_string(bad);
    run->Expect(text, written, one.vectors, other.on_cpu.vectors, kFloatTolerance);
    run->Expect(text + " gram", kOk, one.gram, other.on_cpu.gram, kFloatTolerance);
    run->Expect(text + " a", kOk, one.a, other.on_cpu.a, kFloatTolerance);
  }
}

// With a learning rate of 0, all steps are equal.
void TimeStep(Run* run) {
  const FactoredSize size = {2000, 301, 128, 1};
  FactoredProblem<float> one(size);
  Step<float> step(one, 0, run->stream());
  const DeviceArray<int64_t> steps(Ids{0});
  const double square = 1.0 * size.width * size.width, batch = size.batch;
  run->Time(one.Text("scores"), {16 * square, 4 * square * batch},
            [&] { return one.Score(run->stream()); });
  run->Time(one.Text("step"), {48 * square, 14 * square * batch}, [&] {
    const Status status = step.Compute(size.width - 1, one.by_features.data());
    return status == kOk ? step.step.Write(steps.data()) : status;
  });
}

void CheckStep(Run* run) {
  for (const FactoredSize& size : kFactoredSizes) {
    CheckStepOf<float>(run, size);
    CheckStepOf<double>(run, size);
  }
  CheckDim(run);
  CheckRefused(run);
  CheckUnfit(run);
  CheckIdsOutOfRange(run);
  if (!run->small()) TimeStep(run);
}

void CheckScores(Run* run) {
  for (const FactoredSize& size : kFactoredSizes) {
    CheckScoresOf<float>(run, size);
    CheckScoresOf<double>(run, size);
  }
  CheckFeatures(run);
}

const bool registered =
    Register("FactoredOutputScores", CheckScores) && Register("FactoredOutputStep", CheckStep);

}  // namespace
}  // namespace check
}  // namespace cuda
}  // namespace largeout
