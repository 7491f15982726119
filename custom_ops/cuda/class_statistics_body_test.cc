#include "custom_ops/cuda/class_statistics_body.h"

#include <cmath>
#include <limits>
#include <vector>

#include "custom_ops/core/class_scan.h"
#include "custom_ops/core/testing.h"
#include "custom_ops/cuda/class_scan_testing.h"
#include "custom_ops/cuda/host_blocks.h"

namespace largeout {
namespace cuda {
namespace {

struct Found {
  explicit Found(const ScanProblem& in)
      : log_partition(in.batch), true_logits(in.ids.size()), ranks(in.ids.size()) {}

  std::vector<float> log_partition, true_logits;
  std::vector<int64_t> ranks;
};

Found OnCpu(const ScanProblem& in) {
  Found found(in);
  largeout::ClassStatistics(in.matrix(), in.features(), in.labels(), SerialFor,
                            found.log_partition.data(), found.true_logits.data(),
                            found.ranks.data());
  return found;
}

template <class Shape>
Found InBlocks(const ScanProblem& in) {
  Found found(in);
  const ScanPlan plan = MakeScanPlan<Shape>(in.batch, in.num_classes);
  const int64_t places = plan.shards * in.batch, num_labels = in.batch * in.width;
  std::vector<float> scores(num_labels), shift(places);
  std::vector<double> total(places);
  std::vector<int> higher(num_labels);
  const StatisticsParts parts{scores.data(), higher.data(), shift.data(), total.data()};
  RunItems(num_labels, LabelLogitsBody{in.matrix(), in.features(), in.labels(), parts,
                                       found.true_logits.data()});
  const StatisticsBody<Shape> body{in.matrix(), in.features(), in.labels(), plan, parts};
  RunBlocks((plan.blocks() + 1) / 2, Shape::kThreads, body.kSharedBytes, body);
  const LogPartitionBody log_partition{plan, parts, found.log_partition.data()};
  RunBlocks(2, log_partition.kThreads, log_partition.kSharedBytes, log_partition);
  RunItems(num_labels, RanksBody{in.num_classes, parts, found.ranks.data()});
  return found;
}

std::vector<Found> InAllBlocks(const ScanProblem& in) {
  std::vector<Found> all{InBlocks<WideTile>(in), InBlocks<MiddleTile>(in),
                         InBlocks<LowTile>(in), InBlocks<FlatTile>(in)};
  if (in.dim % 4 == 0) {
    all.push_back(InBlocks<WideTile::ByFours>(in));
    all.push_back(InBlocks<MiddleTile::ByFours>(in));
    all.push_back(InBlocks<LowTile::ByFours>(in));
    all.push_back(InBlocks<FlatTile::ByFours>(in));
  }
  return all;
}

void ExpectNear(float found, float expected, double tolerance) {
  if (std::isnan(expected) || std::isinf(expected)) {
    EXPECT_TRUE(std::isnan(expected) ? std::isnan(found) : found == expected);
    return;
  }
  EXPECT_NEAR(found, expected, tolerance * (1 + std::abs(expected)));
}

void ExpectSame(const Found& found, const Found& expected) {
  for (size_t b = 0; b < expected.log_partition.size(); ++b) {
    ExpectNear(found.log_partition[b], expected.log_partition[b], 1e-5);
  }
  for (size_t i = 0; i < expected.ranks.size(); ++i) {
    ExpectNear(found.true_logits[i], expected.true_logits[i], 1e-5);
    EXPECT_EQ(found.ranks[i], expected.ranks[i]);
  }
}

TEST(StatisticsBodyGivesTheStatisticsOfTheCpu) {
  for (const ScanProblem& in : ScanProblems()) {
    const Found expected = OnCpu(in);
    for (const Found& found : InAllBlocks(in)) ExpectSame(found, expected);
  }
}

TEST(StatisticsBodyAddsUpMoreShardsThanThreads) {
  const ScanProblem in(3, 9001, 2, 1);
  const Found expected = OnCpu(in);
  for (const Found& found : InAllBlocks(in)) ExpectSame(found, expected);
}

template <class Shape>
void ExpectTheSameByFours(const ScanProblem& in) {
  const Found one = InBlocks<Shape>(in), fours = InBlocks<typename Shape::ByFours>(in);
  EXPECT_TRUE(fours.log_partition == one.log_partition);
  EXPECT_TRUE(fours.true_logits == one.true_logits);
  EXPECT_TRUE(fours.ranks == one.ranks);
}

TEST(StatisticsBodyGivesTheSameBitsByFours) {
  const ScanProblem in(40, 600, 20, 3);
  ExpectTheSameByFours<WideTile>(in);
  ExpectTheSameByFours<MiddleTile>(in);
  ExpectTheSameByFours<LowTile>(in);
  ExpectTheSameByFours<FlatTile>(in);
}

int NumbersReadTogether(const float* embeddings, const float* data, int64_t dim) {
  const ClassMatrix matrix{embeddings, nullptr, 5, dim};
  return WithTileFor(matrix, Features{data, 7},
                     [](auto shape) { return decltype(shape)::kTogether; });
}

TEST(TilesReadByFoursWhereTheRowsOfBothAreAligned) {
  alignas(16) const float numbers[8] = {};
  EXPECT_EQ(NumbersReadTogether(numbers, numbers + 4, 8), 4);
  EXPECT_EQ(NumbersReadTogether(numbers, numbers + 4, 6), 1);
  EXPECT_EQ(NumbersReadTogether(numbers, numbers + 3, 8), 1);
  EXPECT_EQ(NumbersReadTogether(numbers + 1, numbers, 8), 1);
}

TEST(StatisticsBodyRanksEqualLogitsByTheLowerId) {
  ScanProblem in(20, 700, 3, 10);
  in.Coarsen();
  const Found expected = OnCpu(in);
  for (const Found& found : InAllBlocks(in)) ExpectSame(found, expected);
}

TEST(StatisticsBodyTreatsNumbersThatAreNotFiniteAsTheCpuDoes) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  ScanProblem in(6, 600, 4, 5);
  in.data[4] = std::nanf("");      // row 1 has no numbers
  in.bias[300] = -kInfinity;       // a class that cannot be
  in.ids[2 * in.width + 1] = 300;  // as a label
  in.ids[3 * in.width] = -1;       // and none
  const Found expected = OnCpu(in);
  for (const Found& found : InAllBlocks(in)) ExpectSame(found, expected);
  in.bias[17] = std::nanf("");
  const Found unknown = OnCpu(in);
  for (const Found& found : InAllBlocks(in)) ExpectSame(found, unknown);
}

TEST(StatisticsBodyGivesNaNForLabelsOutsideTheClasses) {
  for (const int64_t id : {int64_t{600}, int64_t{-2}, int64_t{1} << 62}) {
    ScanProblem in(6, 600, 4, 5);
    const std::vector<Found> before = InAllBlocks(in);
    in.ids[7] = id;
    const std::vector<Found> after = InAllBlocks(in);
    for (size_t shape = 0; shape < after.size(); ++shape) {
      Found expected = before[shape];
      expected.true_logits[7] = std::nanf("");
      expected.ranks[7] = in.num_classes;
      ExpectSame(after[shape], expected);
    }
  }
}

}  // namespace
}  // namespace cuda
}  // namespace largeout
