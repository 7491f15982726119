#include <random>
#include <string>
#include <vector>

#include "custom_ops/core/candidate_softmax.h"
#include "custom_ops/core/candidates.h"
#include "custom_ops/cuda/candidates.h"
#include "custom_ops/cuda/check/check.h"

namespace largeout {
namespace cuda {
namespace check {
namespace {

constexpr double kTolerance = 2e-5;
constexpr float kFill = -9.0f;

struct Size {
  int64_t batch, num_labels, num_candidates, num_classes;
};

// Nothing, one, no multiple of anything, nearly all hits, one label and many.
const Size kSizes[] = {{0, 2, 3, 5},         {3, 0, 7, 5},      {3, 2, 0, 5},
                       {70, 3, 300, 40},     {150, 5, 33, 100}, {2, 400, 600, 5000},
                       {257, 4, 1025, 3000}, {90, 1, 515, 40},  {65, 1, 2056, 9000}};

struct Problem {
  Problem(const Size& size, bool shared, bool per_row)
      : size(size),
        shared(shared),
        per_row(per_row),
        labels(size.batch * size.num_labels),
        ids((shared ? 1 : size.batch) * size.num_candidates),
        logits(size.batch * size.num_candidates),
        offset((per_row ? size.batch : 1) * size.num_candidates),
        true_logits(labels.size()),
        d_log_partition(size.batch) {
    std::mt19937 random(2);
    std::normal_distribution<float> normal;
    for (auto* values : {&logits, &offset, &true_logits, &d_log_partition}) {
      for (float& value : *values) value = normal(random);
    }
    for (auto* some : {&labels, &ids}) {
      for (int64_t& id : *some)
        id = static_cast<int64_t>(random() % (size.num_classes + 1)) - 1;
    }
  }

  Candidates in() const {
    return {labels.data(),   ids.data(),          size.batch,
            size.num_labels, size.num_candidates, shared};
  }
  Offsets offsets() const { return {offset.data(), per_row}; }
  std::string text() const {
    return Sizes({{"batch", size.batch},
                  {"labels", size.num_labels},
                  {"candidates", size.num_candidates},
                  {"shared", shared},
                  {"offsets per row", per_row}});
  }

  const Size size;
  const bool shared, per_row;
  std::vector<int64_t> labels, ids;
  std::vector<float> logits, offset, true_logits, d_log_partition;
};

// The problem, and what is found, in device memory.
struct OnGpu {
  explicit OnGpu(const Problem& in)
      : size(in.size),
        shared(in.shared),
        per_row(in.per_row),
        labels(in.labels),
        ids(in.ids),
        logits(in.logits),
        offset(in.offset),
        true_logits(in.true_logits),
        d_log_partition(in.d_log_partition),
        filled(in.logits),
        matrix(logits.size()),
        log_partition(size.batch),
        column_sums(size.num_candidates),
        ranks(labels.size()),
        scratch(ColumnSumsScratchBytes(size.batch, size.num_candidates)) {}

  Candidates in() const {
    return {labels.data(),   ids.data(),          size.batch,
            size.num_labels, size.num_candidates, shared};
  }
  Offsets offsets() const { return {offset.data(), per_row}; }

  Status Fill(Stream stream) const {
    return FillAccidentalHits(in(), kFill, filled.data(), stream);
  }
  Status Shift(Stream stream) const {
    return ShiftCandidateLogits(in(), logits.data(), offsets(), kFill, matrix.data(), stream);
  }
  Status LogPartition(Stream stream) const {
    return CandidateLogPartition(in(), logits.data(), offsets(), log_partition.data(), stream);
  }
  Status Gradient(Stream stream) const {
    return CandidateLogPartitionGradient(in(), logits.data(), offsets(), log_partition.data(),
                                         d_log_partition.data(), scratch.data(), matrix.data(),
                                         column_sums.data(), stream);
  }
  Status Ranks(Stream stream) const {
    return CandidateRanks(in(), logits.data(), true_logits.data(), ranks.data(), stream);
  }

  const Size size;
  const bool shared, per_row;
  const DeviceArray<int64_t> labels, ids;
  const DeviceArray<float> logits, offset, true_logits, d_log_partition;
  const DeviceArray<float> filled, matrix;
  DeviceArray<float> log_partition;
  const DeviceArray<float> column_sums;
  const DeviceArray<int64_t> ranks;
  const DeviceMemory scratch;
};

void CheckProblem(Run* run, const Problem& in) {
  OnGpu gpu(in);
  std::vector<float> filled = in.logits, matrix(in.logits.size());
  largeout::FillAccidentalHits(in.in(), kFill, SerialFor, filled.data());
  run->Expect(in.text() + " filled", gpu.Fill(run->stream()), gpu.filled, filled);
  largeout::ShiftCandidateLogits(in.in(), in.logits.data(), in.offsets(), kFill, SerialFor,
                                 matrix.data());
  run->Expect(in.text() + " shifted", gpu.Shift(run->stream()), gpu.matrix, matrix);

  std::vector<float> log_partition(in.size.batch), column_sums(in.size.num_candidates);
  largeout::CandidateLogPartition(in.in(), in.logits.data(), in.offsets(), SerialFor,
                                  log_partition.data());
  run->Expect(in.text() + " log_partition", gpu.LogPartition(run->stream()), gpu.log_partition,
              log_partition, kTolerance);
  // The loss has no gradient where every candidate is a hit.
  for (float& value : log_partition) value = value < -1e30f ? 0.0f : value;
  gpu.log_partition.Set(log_partition);
  largeout::CandidateLogPartitionGradient(in.in(), in.logits.data(), in.offsets(),
                                          log_partition.data(), in.d_log_partition.data(),
                                          SerialFor, matrix.data(), column_sums.data());
  const Status launched = gpu.Gradient(run->stream());
  run->Expect(in.text() + " d_logits", launched, gpu.matrix, matrix, kTolerance);
  run->Expect(in.text() + " column sums", launched, gpu.column_sums, column_sums, kTolerance);

  std::vector<int64_t> ranks(in.labels.size());
  largeout::CandidateRanks(in.in(), in.logits.data(), in.true_logits.data(), SerialFor,
                           ranks.data());
  run->Expect(in.text() + " ranks", gpu.Ranks(run->stream()), gpu.ranks, ranks);
}

void CheckCandidates(Run* run) {
  for (const Size& size : kSizes) {
    for (const bool shared : {false, true}) {
      for (const bool per_row : {false, true}) {
        CheckProblem(run, Problem(size, shared, per_row));
      }
    }
  }
  if (run->small()) return;
  for (const int64_t num_labels : {1, 4}) {
    const Problem in({4096, num_labels, 8192, 1000000}, true, false);
    const OnGpu large(in);
    const double bytes = 4.0 * static_cast<double>(in.logits.size());
    const Stream stream = run->stream();
    run->Time("shift " + in.text(), {2 * bytes, 0}, [&] { return large.Shift(stream); });
    run->Time("log partition " + in.text(), {bytes, 0},
              [&] { return large.LogPartition(stream); });
    run->Time("gradient " + in.text(), {2 * bytes, 0}, [&] { return large.Gradient(stream); });
    run->Time("ranks " + in.text(), {bytes, 0}, [&] { return large.Ranks(stream); });
  }
}

const bool registered = Register("Candidates", CheckCandidates);

}  // namespace
}  // namespace check
}  // namespace cuda
}  // namespace largeout
