#include <algorithm>
#include <cmath>
#include <vector>

#include "custom_ops/core/class_scan.h"
#include "custom_ops/cuda/check/class_problem.h"
#include "custom_ops/cuda/class_scan.h"

namespace largeout {
namespace cuda {
namespace check {
namespace {

constexpr double kTolerance = 2e-5;
// Of many classes some are so near to a label that rounding decides.
constexpr double kRankTolerance = 1e-4;

struct StatisticsOnGpu {
  explicit StatisticsOnGpu(const ScanOnGpu& in)
      : StatisticsOnGpu(in, in.matrix(), in.labels()) {}

  StatisticsOnGpu(const ScanOnGpu& in, const ClassMatrix& matrix, const Labels& labels)
      : in(in),
        matrix(matrix),
        labels(labels),
        scratch(ClassStatisticsScratchBytes(in.batch, in.num_classes, in.width)),
        log_partition(in.batch),
        true_logits(in.batch * in.width),
        ranks(in.batch * in.width) {}

  Status Launch(Stream stream) const {
    return ClassStatistics(matrix, in.features(), labels, scratch.data(), log_partition.data(),
                           true_logits.data(), ranks.data(), stream);
  }

  const ScanOnGpu& in;
  const ClassMatrix matrix;
  const Labels labels;
  const DeviceMemory scratch;
  const DeviceArray<float> log_partition, true_logits;
  const DeviceArray<int64_t> ranks;
};

void CheckStatistics(Run* run) {
  for (const ScanProblem& in : ScanProblems(*run)) {
    const ScanOnGpu on_gpu(in);
    const StatisticsOnGpu found(on_gpu);
    const Status launched = found.Launch(run->stream());
    std::vector<float> log_partition(in.batch), true_logits(in.ids.size());
    std::vector<int64_t> ranks(in.ids.size());
    largeout::ClassStatistics(in.matrix(), in.features(), in.labels(), SerialFor,
                              log_partition.data(), true_logits.data(), ranks.data());
    run->Expect(Text(in) + " log_partition", launched, found.log_partition, log_partition,
                kTolerance);
    run->Expect(Text(in) + " true_logits", launched, found.true_logits, true_logits,
                kTolerance);
    run->Expect(Text(in) + " ranks", launched, found.ranks, ranks,
                in.num_classes > 2000 ? kRankTolerance : 0);
  }
}

// The classes from `first` on, as a matrix of their own.
ClassMatrix From(int64_t first, const ClassMatrix& in) {
  return {in.embeddings + first * in.dim, in.bias + first, in.num_classes - first, in.dim};
}

// Ranks in a part of the classes of labels that may stand in another part.
void CheckGivenLogits(Run* run) {
  for (const ScanProblem& in : ScanProblems(*run)) {
    if (!in.is_coarse) continue;
    std::vector<float> logits(in.ids.size()), log_partition(in.batch);
    std::vector<int64_t> ranks(in.ids.size());
    largeout::ClassStatistics(in.matrix(), in.features(), in.labels(), SerialFor,
                              log_partition.data(), logits.data(), ranks.data());
    if (!logits.empty()) logits[0] = NAN;
    const int64_t first = in.num_classes / 3;
    largeout::ClassStatistics(From(first, in.matrix()), in.features(),
                              {in.ids.data(), in.width, logits.data(), first}, SerialFor,
                              log_partition.data(), nullptr, ranks.data());
    const ScanOnGpu on_gpu(in);
    const DeviceArray<float> given(logits);
    const StatisticsOnGpu found(on_gpu, From(first, on_gpu.matrix()),
                                {on_gpu.ids.data(), in.width, given.data(), first});
    const Status launched = found.Launch(run->stream());
    run->Expect(Text(in) + " ranks of given logits", launched, found.ranks, ranks);
    run->Expect(Text(in) + " log_partition of a part", launched, found.log_partition,
                log_partition, kTolerance);
  }
}

void TimeStatistics(Run* run, int64_t batch, int64_t num_classes) {
  const ScanOnGpu in(batch, num_classes, 128);
  const StatisticsOnGpu found(in);
  run->Time(in.text(), {in.matrix_bytes(), in.product_flops()},
            [&] { return found.Launch(run->stream()); });
}

struct TopKOnGpu {
  TopKOnGpu(const ScanOnGpu& in, int64_t k)
      : in(in),
        k(k),
        scratch(ClassTopKScratchBytes(in.batch, in.num_classes, k)),
        scores(in.batch * k),
        ids(in.batch * k) {}

  Status Launch(Stream stream) const {
    return ClassTopK(in.matrix(), in.features(), k, scratch.data(), scores.data(), ids.data(),
                     stream);
  }

  const ScanOnGpu& in;
  const int64_t k;
  const DeviceMemory scratch;
  const DeviceArray<float> scores;
  const DeviceArray<int64_t> ids;
};

// The logits of the classes that were found, [batch, k], NaN for what is no class or comes
// twice. Classes whose logits differ in the last bits may change places with the CPU's.
std::vector<float> LogitsOf(const ScanProblem& in, int64_t k, const std::vector<int64_t>& ids) {
  std::vector<float> logits(ids.size(), NAN);
  for (int64_t i = 0; i < static_cast<int64_t>(ids.size()); ++i) {
    const auto row = ids.begin() + i / k * k;
    const int64_t id = ids[i];
    if (id < 0 || id >= in.num_classes || std::count(row, row + k, id) > 1) continue;
    double sum = in.bias[id];
    for (int64_t d = 0; d < in.dim; ++d) {
      sum += double{in.embeddings[id * in.dim + d]} * in.data[i / k * in.dim + d];
    }
    logits[i] = static_cast<float>(sum);
  }
  return logits;
}

void CheckTopK(Run* run) {
  for (const ScanProblem& in : ScanProblems(*run)) {
    const ScanOnGpu on_gpu(in);
    for (const int64_t wanted : {1, 10, 500, 2048}) {
      const int64_t k = std::min(wanted, in.num_classes);
      const TopKOnGpu found(on_gpu, k);
      const Status launched = found.Launch(run->stream());
      std::vector<float> scores(in.batch * k);
      std::vector<int64_t> ids(in.batch * k);
      largeout::ClassTopK(in.matrix(), in.features(), k, SerialFor, scores.data(), ids.data());
      const std::string text = Text(in) + " k=" + std::to_string(k);
      run->Expect(text + " scores", launched, found.scores, scores, kTolerance);
      run->ExpectNear(text + " logits of ids", LogitsOf(in, k, found.ids.Get()), scores,
                      kTolerance);
      if (in.is_coarse) run->Expect(text + " ids", launched, found.ids, ids);
    }
  }
}

void TimeTopK(Run* run, int64_t batch, int64_t num_classes, int64_t k) {
  const ScanOnGpu in(batch, num_classes, 128);
  const TopKOnGpu found(in, k);
  run->Time(in.text() + " k=" + std::to_string(k), {in.matrix_bytes(), in.product_flops()},
            [&] { return found.Launch(run->stream()); });
}

void CheckClassStatistics(Run* run) {
  CheckStatistics(run);
  CheckGivenLogits(run);
  if (run->small()) return;
  TimeStatistics(run, 4096, 1000000);
  TimeStatistics(run, 256, 1000000);
  TimeStatistics(run, 48, 1000000);
  TimeStatistics(run, 1, 10000000);
}

void CheckClassTopK(Run* run) {
  CheckTopK(run);
  if (run->small()) return;
  TimeTopK(run, 4096, 1000000, 10);
  TimeTopK(run, 512, 1000000, 100);
  TimeTopK(run, 256, 1000000, 100);
  TimeTopK(run, 256, 100000, 500);
  TimeTopK(run, 1, 10000000, 100);
}

const bool registered =
    Register("ClassStatistics", CheckClassStatistics) && Register("ClassTopK", CheckClassTopK);

}  // namespace
}  // namespace check
}  // namespace cuda
}  // namespace largeout
