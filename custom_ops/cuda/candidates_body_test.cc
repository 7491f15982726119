#include "custom_ops/cuda/candidates_body.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "custom_ops/core/candidate_softmax.h"
#include "custom_ops/core/rounding.h"
#include "custom_ops/core/testing.h"
#include "custom_ops/cuda/host_blocks.h"

namespace largeout {
namespace cuda {
namespace {

struct Problem {
  Problem(int64_t batch, int64_t num_labels, int64_t num_candidates, bool shared, bool per_row,
          int64_t num_classes)
      : batch(batch),
        num_labels(num_labels),
        num_candidates(num_candidates),
        shared(shared),
        per_row(per_row) {
    std::mt19937 random(2);
    std::normal_distribution<float> normal;
    for (auto* ids : {&labels, &candidates}) {
      for (int64_t& id : *ids) id = static_cast<int64_t>(random() % (num_classes + 1)) - 1;
    }
    for (auto* values : {&logits, &true_logits, &offset, &d_log_partition}) {
      for (float& value : *values) value = normal(random);
    }
  }

  Candidates in() const {
    return {labels.data(), candidates.data(), batch, num_labels, num_candidates, shared};
  }
  Offsets offsets() const { return {offset.data(), per_row}; }
  ShiftedLogits shifted() const { return {logits.data(), offsets(), num_candidates}; }

  int64_t batch, num_labels, num_candidates;
  bool shared, per_row;
  std::vector<int64_t> labels = std::vector<int64_t>(batch * num_labels);
  std::vector<int64_t> candidates = std::vector<int64_t>((shared ? 1 : batch) * num_candidates);
  std::vector<float> logits = std::vector<float>(batch * num_candidates);
  std::vector<float> true_logits = std::vector<float>(batch * num_labels);
  std::vector<float> offset = std::vector<float>((per_row ? batch : 1) * num_candidates);
  std::vector<float> d_log_partition = std::vector<float>(batch);
};

std::vector<Problem> Problems() {
  std::vector<Problem> problems;
  for (const bool shared : {false, true}) {
    for (const bool per_row : {false, true}) {
      problems.push_back({0, 2, 3, shared, per_row, 5});
      problems.push_back({3, 0, 7, shared, per_row, 5});
      problems.push_back({3, 2, 0, shared, per_row, 5});
      problems.push_back({1, 1, 1, shared, per_row, 1});
      problems.push_back({70, 3, 300, shared, per_row, 40});
      problems.push_back({150, 5, 33, shared, per_row, 100000});
      problems.push_back({2, 400, 600, shared, per_row, 5000});
    }
  }
  return problems;
}

template <class Body>
void Run(const Body& body) {
  RunBlocks(2, kCandidateThreads, Body::kSharedBytes, body);
}

void ExpectNear(const std::vector<float>& found, const std::vector<float>& expected,
                double tolerance) {
  for (size_t i = 0; i < expected.size(); ++i) {
    const double scale = std::abs(double{expected[i]});
    ASSERT_TRUE(std::isfinite(scale));
    EXPECT_NEAR(double{found[i]}, double{expected[i]}, tolerance * (1 + scale));
  }
}

TEST(HitBodiesFillTheHitsOfTheCpu) {
  for (const Problem& in : Problems()) {
    std::vector<float> filled = in.logits, expected = in.logits;
    FillAccidentalHits(in.in(), -9.0f, SerialFor, expected.data());
    Run(FillHitsBody{in.in(), -9.0f, filled.data()});
    EXPECT_EQ(filled, expected);

    std::vector<float> shifted(in.logits.size());
    ShiftCandidateLogits(in.in(), in.logits.data(), in.offsets(), -9.0f, SerialFor,
                         expected.data());
    Run(ShiftBody{in.in(), in.shifted(), -9.0f, shifted.data()});
    EXPECT_EQ(shifted, expected);
  }
}

TEST(LogPartitionBodyGivesThatOfTheCpu) {
  for (const Problem& in : Problems()) {
    std::vector<float> found(in.batch), expected(in.batch);
    CandidateLogPartition(in.in(), in.logits.data(), in.offsets(), SerialFor, expected.data());
    Run(CandidateLogPartitionBody{in.in(), in.shifted(), found.data()});
    ExpectNear(found, expected, 1e-5);
  }
}

TEST(LogPartitionBodyTreatsRowsWithoutNumbersAsTheCpuDoes) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const int64_t size : {16, 300, 320}) {
    Problem in(4, 1, size, true, false, 1000);
    std::fill_n(in.logits.begin(), size, -kInfinity);
    in.logits[size + 7] = std::nanf("");
    std::vector<float> found(4), expected(4);
    CandidateLogPartition(in.in(), in.logits.data(), in.offsets(), SerialFor, expected.data());
    Run(CandidateLogPartitionBody{in.in(), in.shifted(), found.data()});
    EXPECT_EQ(found[0], std::numeric_limits<float>::lowest());
    EXPECT_EQ(expected[0], found[0]);
    EXPECT_TRUE(std::isnan(expected[1]) && std::isnan(found[1]));
    EXPECT_NEAR(found[2], expected[2], 1e-4);
  }
}

TEST(CandidateGradientBodyGivesTheGradientOfTheCpu) {
  for (const Problem& in : Problems()) {
    std::vector<float> log_partition(in.batch);
    CandidateLogPartition(in.in(), in.logits.data(), in.offsets(), SerialFor,
                          log_partition.data());
    for (int64_t b = 0; b < in.batch; ++b) {  // rows of hits alone have no gradient
      if (log_partition[b] < -1e30f) log_partition[b] = 0.0f;
    }
    std::vector<float> found(in.logits.size()), expected(in.logits.size());
    std::vector<float> sums(in.num_candidates), expected_sums(in.num_candidates);
    CandidateLogPartitionGradient(in.in(), in.logits.data(), in.offsets(), log_partition.data(),
                                  in.d_log_partition.data(), SerialFor, expected.data(),
                                  expected_sums.data());
    Run(CandidateGradientBody{in.in(), in.shifted(), log_partition.data(),
                              in.d_log_partition.data(), found.data()});
    const int64_t num_parts = CeilDiv(in.batch, kRowsPerPart);
    std::vector<float> parts(num_parts * in.num_candidates);
    RunItems(num_parts * in.num_candidates,
             ColumnPartsBody{found.data(), in.batch, in.num_candidates, parts.data()});
    RunItems(in.num_candidates,
             ColumnSumsBody{parts.data(), num_parts, in.num_candidates, sums.data()});
    ExpectNear(found, expected, 1e-5);
    ExpectNear(sums, expected_sums, 1e-5);
  }
}

TEST(CandidateRanksBodyGivesTheRanksOfTheCpu) {
  for (Problem in : Problems()) {
    for (size_t i = 0; i < in.logits.size(); i += 3) in.logits[i] = 0.5f;
    for (size_t i = 0; i < in.true_logits.size(); i += 2) in.true_logits[i] = 0.5f;
    if (in.true_logits.size() > 3) in.true_logits[3] = std::nanf("");
    std::vector<int64_t> found(in.labels.size()), expected(in.labels.size());
    CandidateRanks(in.in(), in.logits.data(), in.true_logits.data(), SerialFor,
                   expected.data());
    Run(CandidateRanksBody{in.in(), in.logits.data(), in.true_logits.data(), found.data()});
    EXPECT_EQ(found, expected);
  }
}

}  // namespace
}  // namespace cuda
}  // namespace largeout
