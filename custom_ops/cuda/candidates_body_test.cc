#include "custom_ops/cuda/candidates_body.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "custom_ops/core/candidate_softmax.h"
#include "custom_ops/core/rounding.h"
#include "custom_ops/core/testing.h"
#include "custom_ops/cuda/candidate_softmax_body.h"
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

  // Which bodies are for this problem: those of any, and those of rows with the same.
  std::vector<bool> forms(bool same) const {
    return same ? std::vector<bool>{false, true} : std::vector<bool>{false};
  }
  std::vector<bool> forms() const { return forms(shared && !per_row); }

  bool Hit(int64_t row, int64_t i) const {
    const int64_t id = candidates[(shared ? 0 : row * num_candidates) + i];
    const auto first = labels.begin() + row * num_labels;
    return id >= 0 && std::find(first, first + num_labels, id) != first + num_labels;
  }
  float Logit(int64_t row, int64_t i) const {
    return logits[row * num_candidates + i] + offset[(per_row ? row * num_candidates : 0) + i];
  }

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
      problems.push_back({5, 1, 2500, shared, per_row, 40});
      problems.push_back({13, 4, 1030, shared, per_row, 700});
    }
  }
  return problems;
}

template <class Body>
void Run(const Body& body) {
  RunBlocks(2, kCandidateThreads, Body::kSharedBytes, body);
}

template <template <bool> class Body, class... Arguments>
void Run(bool same, const Arguments&... arguments) {
  if (same) {
    Run(Body<true>{arguments...});
  } else {
    Run(Body<false>{arguments...});
  }
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
    std::vector<float> expected = in.logits;
    FillAccidentalHits(in.in(), -9.0f, SerialFor, expected.data());
    for (const bool same : in.forms(in.shared)) {
      std::vector<float> filled = in.logits;
      Run<FillHitsBody>(same, in.in(), -9.0f, filled.data());
      EXPECT_EQ(filled, expected);
    }
    ShiftCandidateLogits(in.in(), in.logits.data(), in.offsets(), -9.0f, SerialFor,
                         expected.data());
    for (const bool same : in.forms()) {
      std::vector<float> shifted(in.logits.size()), in_place = in.logits;
      Run<ShiftBody>(same, in.in(), in.shifted(), -9.0f, shifted.data());
      EXPECT_EQ(shifted, expected);
      const ShiftedLogits from{in_place.data(), in.offsets(), in.num_candidates};
      Run<ShiftBody>(same, in.in(), from, -9.0f, in_place.data());
      EXPECT_EQ(in_place, expected);
    }
  }
}

TEST(IdsThatDifferInTheirHigherBitsAreNoHits) {
  for (const int64_t num_labels : {1, 3}) {
    Problem in(9, num_labels, 300, true, false, 50);
    for (int64_t i = 0; i < 300; i += 2) in.candidates[i] += int64_t{1} << 32;
    std::vector<float> filled = in.logits;
    Run<FillHitsBody>(true, in.in(), -9.0f, filled.data());
    for (int64_t i = 0; i < 9 * 300; ++i) {
      EXPECT_EQ(filled[i], in.Hit(i / 300, i % 300) ? -9.0f : in.logits[i]);
    }
  }
}

TEST(PaddingIsNoHit) {
  for (const int64_t num_labels : {1, 2}) {
    Problem in(20, num_labels, 70, true, false, 5000);
    std::fill(in.candidates.begin(), in.candidates.end(), -1);
    for (size_t l = 0; l < in.labels.size(); ++l) {
      in.labels[l] = l % num_labels == 0 ? -1 : int64_t{0xFFFFFFFF};  // lower bits alike
    }
    std::vector<float> filled = in.logits;
    Run<FillHitsBody>(true, in.in(), -9.0f, filled.data());
    EXPECT_EQ(filled, in.logits);
  }
}

TEST(LogPartitionBodyGivesThatOfTheCpu) {
  for (const Problem& in : Problems()) {
    std::vector<float> expected(in.batch);
    CandidateLogPartition(in.in(), in.logits.data(), in.offsets(), SerialFor, expected.data());
    for (const bool same : in.forms()) {
      std::vector<float> found(in.batch);
      Run<CandidateLogPartitionBody>(same, in.in(), in.shifted(), found.data());
      ExpectNear(found, expected, 1e-5);
    }
  }
}

TEST(LogPartitionBodyTreatsRowsWithoutNumbersAsTheCpuDoes) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kLowest = std::numeric_limits<float>::lowest();
  for (const int64_t size : {16, 300, 320, 2500}) {
    for (const int64_t num_labels : {1, 2}) {
      Problem in(7, num_labels, size, false, false, 1000);
      std::fill_n(in.logits.begin(), size, -kInfinity);
      in.logits[size + 7] = std::nanf("");
      std::fill_n(in.candidates.begin() + 3 * size, size, 5);  // hits alone
      in.labels[3 * num_labels] = 5;
      std::fill_n(in.logits.begin() + 4 * size, size - 1, -kInfinity);
      std::fill_n(in.logits.begin() + 5 * size, size, kLowest);
      std::vector<float> found(7), expected(7);
      CandidateLogPartition(in.in(), in.logits.data(), in.offsets(), SerialFor,
                            expected.data());
      Run<CandidateLogPartitionBody>(false, in.in(), in.shifted(), found.data());
      EXPECT_TRUE(std::isnan(expected[1]) && std::isnan(found[1]));
      for (const int row : {0, 3, 5}) {
        EXPECT_EQ(found[row], kLowest);
        EXPECT_EQ(expected[row], found[row]);
      }
      for (const int row : {2, 4, 6}) EXPECT_NEAR(found[row], expected[row], 1e-4);
    }
  }
}

// Rows of hits alone, whose log partition is about the lowest float, have no gradient.
std::vector<float> LogPartition(const Problem& in) {
  std::vector<float> log_partition(in.batch);
  CandidateLogPartition(in.in(), in.logits.data(), in.offsets(), SerialFor,
                        log_partition.data());
  for (float& value : log_partition) value = value < -1e30f ? 0.0f : value;
  return log_partition;
}

struct Gradient {
  std::vector<float> d_logits, column_sums;
};

Gradient GradientOf(const Problem& in, const std::vector<float>& log_partition, bool same) {
  const int64_t num_parts = CeilDiv(in.batch, kRowsPerPart);
  std::vector<float> parts(num_parts * in.num_candidates);
  Gradient gradient{std::vector<float>(in.logits.size()),
                    std::vector<float>(in.num_candidates)};
  Run<CandidateGradientBody>(same, in.in(), in.shifted(), log_partition.data(),
                             in.d_log_partition.data(), gradient.d_logits.data(), parts.data());
  RunItems(in.num_candidates, ColumnSumsBody{parts.data(), num_parts, in.num_candidates,
                                             gradient.column_sums.data()});
  return gradient;
}

TEST(CandidateGradientBodyGivesTheGradientOfTheCpu) {
  for (const Problem& in : Problems()) {
    const std::vector<float> log_partition = LogPartition(in);
    Gradient expected{std::vector<float>(in.logits.size()),
                      std::vector<float>(in.num_candidates)};
    CandidateLogPartitionGradient(in.in(), in.logits.data(), in.offsets(), log_partition.data(),
                                  in.d_log_partition.data(), SerialFor,
                                  expected.d_logits.data(), expected.column_sums.data());
    for (const bool same : in.forms()) {
      const Gradient found = GradientOf(in, log_partition, same);
      ExpectNear(found.d_logits, expected.d_logits, 1e-5);
      ExpectNear(found.column_sums, expected.column_sums, 1e-5);
    }
    std::vector<float> alone(in.logits.size());  // without column sums
    float* const no_parts = nullptr;
    Run<CandidateGradientBody>(false, in.in(), in.shifted(), log_partition.data(),
                               in.d_log_partition.data(), alone.data(), no_parts);
    EXPECT_EQ(alone, GradientOf(in, log_partition, false).d_logits);
  }
}

// Of 13 parts, the last of 2 rows. Hits are 0 whatever the row is multiplied by.
TEST(CandidateGradientBodyAddsRowsInOrderPartByPart) {
  Problem in(12 * kRowsPerPart + 2, 2, 70, true, false, 30);
  in.d_log_partition[3] = std::numeric_limits<float>::infinity();
  const std::vector<float> log_partition = LogPartition(in);
  for (const bool same : in.forms()) {
    const Gradient found = GradientOf(in, log_partition, same);
    for (int64_t i = 0; i < 70; ++i) {
      float sum = 0, part = 0;
      for (int64_t row = 0; row < in.batch; ++row) {
        const float share = expf(in.Logit(row, i) - log_partition[row]);
        const float value = in.Hit(row, i) ? 0.0f : in.d_log_partition[row] * share;
        EXPECT_EQ(found.d_logits[row * 70 + i], value);
        part += value;
        if ((row + 1) % kRowsPerPart != 0 && row + 1 < in.batch) continue;
        sum += part;
        part = 0;
      }
      EXPECT_EQ(found.column_sums[i], sum);
    }
  }
}

TEST(CandidateRanksBodyGivesTheRanksOfTheCpu) {
  for (Problem in : Problems()) {
    for (size_t i = 0; i < in.logits.size(); i += 3) in.logits[i] = 0.5f;
    for (size_t i = 0; i < in.true_logits.size(); i += 2) in.true_logits[i] = 0.5f;
    for (size_t i = 1; i < in.logits.size(); i += 7) {
      in.logits[i] = i % 2 != 0 ? std::nanf("") : std::numeric_limits<float>::infinity();
    }
    if (in.true_logits.size() > 5) {
      in.true_logits[3] = std::nanf("");
      in.true_logits[4] = std::numeric_limits<float>::infinity();
      in.true_logits[5] = -std::numeric_limits<float>::infinity();
    }
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
