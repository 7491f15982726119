#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "custom_ops/core/class_scan/class_scan.h"
#include "custom_ops/core/class_scan/lost_logits.h"
#include "custom_ops/cuda/check/class_problem.h"
#include "custom_ops/cuda/class_scan.h"
#include "custom_ops/cuda/class_scan_plan.h"

namespace largeout {
namespace cuda {
namespace check {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr double kTolerance = 2e-5;
// With many classes, some logits are so close to a label's that rounding decides the rank.
constexpr double kRankTolerance = 1e-4;

// Numbers that are extreme or not finite, or come in an order that is hard for the lists.
std::vector<ScanProblem> OddProblems() {
  std::vector<ScanProblem> problems;
  ScanProblem* in = &problems.emplace_back(6, 600, 4, 5, "not finite");
  in->data[4] = NAN;                 // example 1 is not finite
  in->bias[300] = -kInfinity;        // a class of probability 0
  in->ids[2 * in->width + 1] = 300;  // which is also a label
  in->ids[3 * in->width] = -1;       // and a missing label
  in = &problems.emplace_back(6, 600, 4, 5, "a bias that is NaN");
  in->bias[17] = NAN;
  in = &problems.emplace_back(4, 600, 4, 2, "few are finite");
  in->data[4] = NAN;
  for (int64_t c = 5; c < 600; ++c) in->bias[c] = c % 2 == 0 ? NAN : -kInfinity;
  in->bias[1] = in->bias[3] = kInfinity;
  in->is_exact = true;  // only ids are exact: few logits are finite
  in = &problems.emplace_back(3, 400, 4, 2, "overflow");
  in->Coarsen();
  std::fill_n(in->data.begin() + 4, 4, 3e38f);  // example 1
  std::fill(in->embeddings.begin(), in->embeddings.end(), 2.0f);

  in = &problems.emplace_back(4, 5000, 1, 1, "rising, falling, equal");
  for (int64_t c = 0; c < 4999; ++c) in->embeddings[c] = static_cast<float>(c);
  in->embeddings[4999] = 498.5f;  // of example 1: place 500
  std::fill(in->bias.begin(), in->bias.end(), 0.0f);
  in->data = {1.0f, -1.0f, 0.5f, 0.0f};
  in->is_exact = true;

  // Without labels, because the CPU ranks subnormal numbers as 0.
  using Limits = std::numeric_limits<float>;
  const float numbers[] = {0.0f,   -0.0f,         -Limits::denorm_min(), Limits::denorm_min(),
                           1e-30f, -1e-30f,       Limits::max(),         -Limits::max(),
                           -7.0f,  Limits::min(), -Limits::min()};
  in = &problems.emplace_back(2, 1500, 8, 0, "from the smallest to the largest");
  std::fill(in->data.begin(), in->data.end(), -1.0f);  // products of -0 keep a bias of -0
  std::fill(in->embeddings.begin(), in->embeddings.end(), 0.0f);
  for (int64_t c = 0; c < 1500; ++c) in->bias[c] = numbers[c % 11];
  in->is_exact = true;

  // Shards have three tiles. In the first tile, shard s has s classes above -inf; the second
  // tile is full. So lists of every length receive many entries.
  in = &problems.emplace_back(4, 3 * kScanBlocks * FlatTile::kColumns, 1, 1, "few before many");
  const ScanPlan plan = MakeScanPlan<FlatTile>(4, in->num_classes);
  for (int64_t c = 0; c < in->num_classes; ++c) {
    const int64_t shard = c / plan.shard_classes, at = c % plan.shard_classes;
    in->embeddings[c] = static_cast<float>(c * 611953 % 4099 - 2049);
    in->bias[c] = at < FlatTile::kColumns && at >= shard ? -kInfinity : 0.0f;
  }
  in->data = {1.0f, -1.0f, 0.5f, 0.0f};
  in->is_exact = true;
  return problems;
}

std::vector<ScanProblem> AllProblems(const Run& run) {
  std::vector<ScanProblem> problems = ScanProblems(run);
  for (ScanProblem& odd : OddProblems()) problems.push_back(std::move(odd));
  return problems;
}

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
  for (const ScanProblem& in : AllProblems(*run)) {
    const ScanOnGpu on_gpu(in);
    const StatisticsOnGpu found(on_gpu);
    const Status launched = found.Launch(run->stream());
    const ScanProblem good = in.WithoutBadLabels();
    std::vector<float> log_partition(in.batch), true_logits(in.ids.size());
    std::vector<int64_t> ranks(in.ids.size());
    largeout::ClassStatistics(good.matrix(), good.features(), good.labels(), SerialFor,
                              log_partition.data(), true_logits.data(), ranks.data());
    for (size_t i = 0; i < in.ids.size(); ++i) {
      if (in.IsBadLabel(i)) true_logits[i] = NAN;
    }
    run->Expect(Text(in) + " log_partition", launched, found.log_partition, log_partition,
                kTolerance);
    run->Expect(Text(in) + " true_logits", launched, found.true_logits, true_logits,
                kTolerance);
    run->Expect(Text(in) + " ranks", launched, found.ranks, ranks,
                in.num_classes > 2000 && !in.is_exact ? kRankTolerance : 0);
    const DeviceArray<float> alone(in.ids.size());
    const Status asked = LabelLogits(on_gpu.matrix(), on_gpu.features(), on_gpu.labels(),
                                     alone.data(), run->stream());
    run->Expect(Text(in) + " label logits", asked, alone, found.true_logits.Get());
    if (Skips(in).size() == 1) continue;
    const ScanOnGpu skipped(in, 1);
    const StatisticsOnGpu by_ones(skipped);
    const Status again = by_ones.Launch(run->stream());
    run->Expect(Text(in) + " log_partition by ones", again, by_ones.log_partition,
                found.log_partition.Get(), 1e-6);
    run->Expect(Text(in) + " true_logits by ones", again, by_ones.true_logits,
                found.true_logits.Get());
    run->Expect(Text(in) + " ranks by ones", again, by_ones.ranks, found.ranks.Get());
  }
}

// The classes from `first` on, as a separate matrix.
ClassMatrix From(int64_t first, const ClassMatrix& in) {
  return {in.embeddings + first * in.dim, in.bias + first, in.num_classes - first, in.dim};
}

// Ranks, within a shard of the classes, of labels that may belong to another shard.
void CheckGivenLogits(Run* run) {
  for (const ScanProblem& problem : ScanProblems(*run)) {
    if (!problem.is_exact) continue;
    const ScanProblem in = problem.WithoutBadLabels();
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

// Replaces lost logits in the CPU's result by what the GPU writes for them: NaN and id -1.
void ForgetLostLogits(const ScanProblem& in, std::vector<float>* scores,
                      std::vector<int64_t>* ids) {
  for (size_t i = 0; i < ids->size(); ++i) {
    const auto id = static_cast<int32_t>((*ids)[i]);
    if (!IsLost(in.matrix(), {(*scores)[i], id})) continue;
    (*scores)[i] = NAN;
    (*ids)[i] = -1;
  }
}

// The logits of the found classes, [batch, k]; NaN for an invalid or repeated id. Classes whose
// logits differ only in the last bits may be in another order than the CPU's.
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
  for (const ScanProblem& in : AllProblems(*run)) {
    for (const int64_t wanted : {1, 10, 500, 2048}) {
      const int64_t k = std::min(wanted, in.num_classes);
      std::vector<float> scores(in.batch * k);
      std::vector<int64_t> ids(in.batch * k);
      largeout::ClassTopK(in.matrix(), in.features(), k, SerialFor, scores.data(), ids.data());
      ForgetLostLogits(in, &scores, &ids);
      const std::string text = Text(in) + " k=" + std::to_string(k);
      for (const int64_t skipped : Skips(in)) {
        const ScanOnGpu on_gpu(in, skipped);
        const TopKOnGpu found(on_gpu, k);
        const Status launched = found.Launch(run->stream());
        run->Expect(text + " scores", launched, found.scores, scores, kTolerance);
        run->ExpectNear(text + " logits of ids", LogitsOf(in, k, found.ids.Get()), scores,
                        kTolerance);
        if (in.is_exact) run->Expect(text + " ids", launched, found.ids, ids);
      }
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
