#include "custom_ops/core/candidates/candidates.h"

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "custom_ops/core/base/testing.h"
#include "custom_ops/core/candidates/candidate_softmax.h"

namespace largeout {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kLowest = std::numeric_limits<float>::lowest();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// Two examples with labels {3, padding} and {5, 3}, and the given candidates.
struct Problem {
  Problem(std::vector<int64_t> candidate_ids, bool shared)
      : ids(std::move(candidate_ids)), shared(shared) {}

  Candidates candidates() const {
    const int64_t size = ids.size();
    return {labels.data(), ids.data(), 2, 2, shared ? size : size / 2, shared};
  }
  int64_t num_logits() const { return 2 * candidates().num_candidates; }

  std::vector<int64_t> labels = {3, -1, 5, 3};
  std::vector<int64_t> ids;
  bool shared;
};

std::vector<float> RandomNumbers(int64_t size, int seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> numbers(size);
  for (float& number : numbers) number = normal(random);
  return numbers;
}

std::vector<float> Filled(const Problem& in) {
  std::vector<float> values(in.num_logits(), 1.0f);
  FillAccidentalHits(in.candidates(), -7.0f, SerialFor, values.data());
  return values;
}

std::vector<float> LogPartition(const Problem& in, const std::vector<float>& logits,
                                const Offsets& offsets) {
  std::vector<float> log_partition(2);
  CandidateLogPartition(in.candidates(), logits.data(), offsets, SerialFor,
                        log_partition.data());
  return log_partition;
}

TEST(HitsAreTheCandidatesThatAreLabelsOfTheExample) {
  // A padding label does not hit a padding candidate; a repeated candidate is hit each time.
  EXPECT_EQ(Filled(Problem({3, 5, -1, 3}, true)),
            (std::vector<float>{-7, 1, 1, -7, -7, -7, 1, -7}));
  EXPECT_EQ(Filled(Problem({5, 3, -1, 3, /**/ 4, 5, -1, 3}, false)),
            (std::vector<float>{1, -7, 1, -7, 1, -7, 1, -7}));
  EXPECT_TRUE(Filled(Problem({}, true)).empty());
}

TEST(ShiftedLogitsAreThoseOfTheLogPartition) {
  testing::ForEachSimdLevel([] {
    for (const bool per_row : {false, true}) {
      const Problem in({3, 8, 5, 9, 3, 1, 2}, true);
      const std::vector<float> logits = RandomNumbers(in.num_logits(), 1);
      const std::vector<float> values = RandomNumbers(in.num_logits(), 2);
      const Offsets offsets = {values.data(), per_row};
      std::vector<float> shifted(in.num_logits());
      ShiftCandidateLogits(in.candidates(), logits.data(), offsets, -kInfinity, SerialFor,
                           shifted.data());
      const std::vector<float> log_partition = LogPartition(in, logits, offsets);
      for (int64_t b = 0; b < 2; ++b) {
        double sum = 0;
        for (int64_t i = 0; i < 7; ++i) sum += std::exp(double{shifted[b * 7 + i]});
        EXPECT_NEAR(log_partition[b], std::log(sum), 1e-5);
      }
    }
  });
}

TEST(LogPartitionWithoutCandidatesIsTheLowestFloat) {
  testing::ForEachSimdLevel([] {
    const std::vector<float> zeros(4, 0.0f);
    const Offsets offsets = {zeros.data(), false};
    const std::vector<float> none = {kLowest, kLowest};
    EXPECT_EQ(LogPartition(Problem({}, true), {}, offsets), none);
    EXPECT_EQ(LogPartition(Problem({8, 9}, true), std::vector<float>(4, -kInfinity), offsets),
              none);
    // All candidates are hits in both examples.
    EXPECT_EQ(LogPartition(Problem({3, 3}, true), zeros, offsets), none);
  });
}

TEST(GradientOfTheLogPartitionAgreesWithDifferences) {
  testing::ForEachSimdLevel([] {
    const Problem in({3, 8, 5, 9, 3, 1, 2, 6, 4}, true);
    std::vector<float> logits = RandomNumbers(in.num_logits(), 3);
    std::vector<float> values = RandomNumbers(9, 4);
    const Offsets offsets = {values.data(), false};
    const std::vector<float> log_partition = LogPartition(in, logits, offsets);
    const float d_log_partition[] = {0.5f, -2.0f};
    std::vector<float> d_logits(in.num_logits()), d_offsets(9);
    CandidateLogPartitionGradient(in.candidates(), logits.data(), offsets, log_partition.data(),
                                  d_log_partition, SerialFor, d_logits.data(),
                                  d_offsets.data());
    const auto slope = [&](float* number) {
      constexpr float kStep = 1.0f / 64;
      const float before = *number;
      double difference = 0;
      for (const float sign : {1.0f, -1.0f}) {
        *number = before + sign * kStep;
        const std::vector<float> moved = LogPartition(in, logits, offsets);
        for (int b = 0; b < 2; ++b) difference += sign * d_log_partition[b] * moved[b];
      }
      *number = before;
      return difference / (2 * kStep);
    };
    for (size_t i = 0; i < logits.size(); ++i)
      EXPECT_NEAR(d_logits[i], slope(&logits[i]), 5e-4);
    for (size_t i = 0; i < 9; ++i) EXPECT_NEAR(d_offsets[i], slope(&values[i]), 5e-4);
    CandidateLogPartitionGradient(in.candidates(), logits.data(), offsets, log_partition.data(),
                                  d_log_partition, SerialFor, logits.data(), nullptr);
    EXPECT_EQ(logits, d_logits);
  });
}

TEST(RanksCountHigherCandidatesAndLabels) {
  const int64_t labels[] = {4, 7, -1, 4, 9};
  // With their offsets, the candidates score 1, 2, 2 and 3. Class 5 has no effect.
  const int64_t no_effect[] = {5, -1}, ids[] = {1, 2, 5, 2, 3, 5};
  const float logits[] = {0.0f, 1.0f, 8.0f, 1.0f, 2.0f, kInfinity}, ones[] = {1, 1, 1, 1, 1, 1};
  const auto ranks = [&](const std::vector<float>& true_logits) {
    std::vector<int64_t> found(5);
    CandidateRanks({no_effect, ids, 1, 2, 6, true}, logits, {ones, false},
                   {labels, true_logits.data(), 5}, SerialFor, found.data());
    return found;
  };
  testing::ForEachSimdLevel([&] {
    // A candidate that is equal to a label is not above it. Equal labels rank by slot. A label
    // is not above itself in another slot. Padding and NaN come last.
    EXPECT_EQ(ranks({2, 2, 5, 2, 2}), (std::vector<int64_t>{1, 2, 11, 2, 4}));
    EXPECT_EQ(ranks({0, kNaN, 0, kInfinity, -kInfinity}),
              (std::vector<int64_t>{4, 11, 11, 0, 6}));
  });
}

}  // namespace
}  // namespace largeout
