#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "custom_ops/core/candidates/candidate_softmax.h"
#include "custom_ops/core/candidates/candidates.h"
#include "custom_ops/cuda/candidate_softmax_body.h"
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

// Empty batches, no labels, one label and many, sizes that no tile divides, and nearly all
// candidates accidental hits.
const Size kSizes[] = {{0, 2, 3, 5},         {3, 0, 7, 5},       {3, 2, 0, 5},
                       {1, 1, 1, 1},         {13, 4, 1030, 700}, {5, 1, 2500, 40},
                       {70, 3, 300, 40},     {150, 5, 33, 100},  {2, 400, 600, 5000},
                       {257, 4, 1025, 3000}, {90, 1, 515, 40},   {65, 1, 2056, 9000}};

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
    return name + Sizes({{"batch", size.batch},
                         {"labels", size.num_labels},
                         {"candidates", size.num_candidates},
                         {"shared", shared},
                         {"offsets per row", per_row}});
  }

  Size size;
  bool shared, per_row;
  std::string name;
  std::vector<int64_t> labels, ids;
  std::vector<float> logits, offset, true_logits, d_log_partition;
};

// Changes the numbers of a random problem.
struct Case {
  const char* name;
  void (*change)(Problem* in);
};

constexpr int64_t kHighBit = int64_t{1} << 32;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

const Case kCases[] = {
    {"", [](Problem*) {}},
    {"ids that differ in higher bits ",
     [](Problem* in) {
       for (size_t i = 0; i < in->ids.size(); i += 2) in->ids[i] += kHighBit;
     }},
    {"padding ",  // whose low 32 bits equal those of a label
     [](Problem* in) {
       std::fill(in->ids.begin(), in->ids.end(), -1);
       for (size_t l = 0; l < in->labels.size(); ++l) {
         in->labels[l] = l % 2 == 0 ? kHighBit - 1 : -1;
       }
     }},
    {"rows without numbers ",
     [](Problem* in) {
       const int64_t size = in->size.num_candidates;
       if (in->size.batch < 6) return;
       const auto logits = in->logits.begin();
       std::fill_n(logits, size, -kInfinity);
       logits[size + size / 2] = NAN;
       if (!in->shared) {  // example 3 has only hits: its gradient is 0 for any d_log_partition
         std::fill_n(in->ids.begin() + 3 * size, size, 5);
         in->d_log_partition[3] = kInfinity;
       }
       in->labels[3 * in->size.num_labels] = 5;
       std::fill_n(logits + 4 * size, size - 1, -kInfinity);
       std::fill_n(logits + 5 * size, size, std::numeric_limits<float>::lowest());
     }},
};

// The inputs and results of a problem in device memory.
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
  Status Shift(const DeviceArray<float>& from, const DeviceArray<float>& to,
               Stream stream) const {
    return ShiftCandidateLogits(in(), from.data(), offsets(), kFill, to.data(), stream);
  }
  Status LogPartition(Stream stream) const {
    return CandidateLogPartition(in(), logits.data(), offsets(), log_partition.data(), stream);
  }
  Status Gradient(Stream stream) const {
    return Gradient(logits.data(), column_sums.data(), stream);
  }
  Status Gradient(const float* from, float* sums, Stream stream) const {
    return CandidateLogPartitionGradient(in(), from, offsets(), log_partition.data(),
                                         d_log_partition.data(), scratch.data(), matrix.data(),
                                         sums, stream);
  }
  Status Ranks(Stream stream) const {
    return CandidateRanks(in(), logits.data(), true_logits.data(), ranks.data(), stream);
  }

  const Size size;
  const bool shared, per_row;
  const DeviceArray<int64_t> labels, ids;
  const DeviceArray<float> logits, offset, true_logits, d_log_partition;
  DeviceArray<float> filled, matrix, log_partition;
  const DeviceArray<float> column_sums;
  const DeviceArray<int64_t> ranks;
  const DeviceMemory scratch;
};

// The column sums of [batch, num_candidates] in the order of the GPU: the examples of each
// part, then the parts.
std::vector<float> SumsInOrder(const std::vector<float>& matrix, int64_t columns) {
  std::vector<float> sums(columns);
  const auto batch = static_cast<int64_t>(matrix.size()) / std::max<int64_t>(columns, 1);
  for (int64_t i = 0; i < columns; ++i) {
    for (int64_t first = 0; first < batch; first += kRowsPerPart) {
      float part = 0;
      for (int64_t row = first; row < std::min(first + kRowsPerPart, batch); ++row) {
        part += matrix[row * columns + i];
      }
      sums[i] += part;
    }
  }
  return sums;
}

void CheckRanks(Run* run, Problem in) {
  for (size_t i = 0; i < in.logits.size(); i += 3) in.logits[i] = 0.5f;
  for (size_t i = 0; i < in.true_logits.size(); i += 2) in.true_logits[i] = 0.5f;
  for (size_t i = 1; i < in.logits.size(); i += 7) in.logits[i] = i % 2 != 0 ? NAN : kInfinity;
  if (in.true_logits.size() > 5) {
    in.true_logits[3] = NAN;
    in.true_logits[4] = kInfinity;
    in.true_logits[5] = -kInfinity;
  }
  const OnGpu gpu(in);
  std::vector<int64_t> ranks(in.labels.size());
  const std::vector<float> zeros(in.logits.size());
  const Candidates no_hits = {nullptr, in.ids.data(),          in.size.batch,
                              0,       in.size.num_candidates, in.shared};
  largeout::CandidateRanks(no_hits, in.logits.data(), {zeros.data(), true},
                           {in.labels.data(), in.true_logits.data(), in.size.num_labels},
                           SerialFor, ranks.data());
  run->Expect(in.text() + " ranks", gpu.Ranks(run->stream()), gpu.ranks, ranks);
}

void CheckProblem(Run* run, const Problem& in) {
  OnGpu gpu(in);
  std::vector<float> filled = in.logits, matrix(in.logits.size());
  largeout::FillAccidentalHits(in.in(), kFill, SerialFor, filled.data());
  run->Expect(in.text() + " filled", gpu.Fill(run->stream()), gpu.filled, filled);
  largeout::ShiftCandidateLogits(in.in(), in.logits.data(), in.offsets(), kFill, SerialFor,
                                 matrix.data());
  run->Expect(in.text() + " shifted", gpu.Shift(gpu.logits, gpu.matrix, run->stream()),
              gpu.matrix, matrix);
  gpu.filled.Set(in.logits);
  run->Expect(in.text() + " shifted in place", gpu.Shift(gpu.filled, gpu.filled, run->stream()),
              gpu.filled, matrix);

  std::vector<float> log_partition(in.size.batch), column_sums(in.size.num_candidates);
  largeout::CandidateLogPartition(in.in(), in.logits.data(), in.offsets(), SerialFor,
                                  log_partition.data());
  run->Expect(in.text() + " log_partition", gpu.LogPartition(run->stream()), gpu.log_partition,
              log_partition, kTolerance);
  // The gradient is undefined if log_partition is not finite or every candidate is a hit.
  for (float& value : log_partition) value = value > -1e30f ? value : 0.0f;
  gpu.log_partition.Set(log_partition);
  // d_log_partition is infinite for the example whose candidates are all hits.
  std::vector<float> d_log_partition = in.d_log_partition;
  for (float& value : d_log_partition) value = std::isfinite(value) ? value : 1;
  largeout::CandidateLogPartitionGradient(in.in(), in.logits.data(), in.offsets(),
                                          log_partition.data(), d_log_partition.data(),
                                          SerialFor, matrix.data(), column_sums.data());
  const Status launched = gpu.Gradient(run->stream());
  run->Expect(in.text() + " d_logits", launched, gpu.matrix, matrix, kTolerance);
  run->Expect(in.text() + " column sums", launched, gpu.column_sums, column_sums, kTolerance);
  run->Expect(in.text() + " column sums in order", launched, gpu.column_sums,
              SumsInOrder(gpu.matrix.Get(), in.size.num_candidates));
  const std::vector<float> d_logits = gpu.matrix.Get();
  gpu.matrix.Set(in.logits);
  run->Expect(in.text() + " d_logits alone, in place",
              gpu.Gradient(gpu.matrix.data(), nullptr, run->stream()), gpu.matrix, d_logits);
}

void CheckCandidates(Run* run) {
  for (const Size& size : kSizes) {
    for (const bool shared : {false, true}) {
      for (const bool per_row : {false, true}) {
        for (const Case& one : kCases) {
          Problem in(size, shared, per_row);
          one.change(&in);
          in.name = one.name;
          CheckProblem(run, in);
        }
        CheckRanks(run, Problem(size, shared, per_row));
      }
    }
  }
  if (run->small()) return;
  for (const int64_t num_labels : {1, 4}) {
    const Problem in({4096, num_labels, 8192, 1000000}, true, false);
    const OnGpu large(in);
    const double bytes = 4.0 * static_cast<double>(in.logits.size());
    const Stream stream = run->stream();
    run->Time("shift " + in.text(), {2 * bytes, 0},
              [&] { return large.Shift(large.logits, large.matrix, stream); });
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
