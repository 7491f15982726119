#include "custom_ops/cuda/class_top_k_body.h"

#include <algorithm>
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
  Found(const ScanProblem& in, int64_t k) : scores(in.batch * k), ids(in.batch * k) {}

  std::vector<float> scores;
  std::vector<int64_t> ids;
};

Found OnCpu(const ScanProblem& in, int64_t k) {
  Found found(in, k);
  largeout::ClassTopK(in.matrix(), in.features(), k, SerialFor, found.scores.data(),
                      found.ids.data());
  return found;
}

template <class Shape>
Found InBlocks(const ScanProblem& in, int64_t k) {
  using Body = TopKBody<Shape>;
  Found found(in, k);
  const ScanPlan plan = MakeScanPlan<Shape>(in.batch, in.num_classes);
  const int64_t stride = k + Body::kWaiting;
  std::vector<ScoreKey> lists(plan.blocks() * Shape::kRows * stride);
  std::vector<ScoreKey> area(in.batch * (k + kMergeWaiting));
  const Body body{in.matrix(), in.features(), k, plan, lists.data()};
  RunBlocks((plan.blocks() + 1) / 2, Shape::kThreads, Body::SharedBytes(k), body);
  const MergeTopKBody merge{in.matrix(),
                            in.features(),
                            k,
                            plan,
                            Shape::kRows,
                            stride,
                            lists.data(),
                            area.data(),
                            found.scores.data(),
                            found.ids.data()};
  RunBlocks(2, kMergeThreads, MergeTopKBody::SharedBytes(k), merge);
  return found;
}

void ExpectSame(const ScanProblem& in, int64_t k) {
  Found expected = OnCpu(in, k);
  for (size_t i = 0; i < expected.ids.size(); ++i) {
    if (!IsLost(in.matrix(), {expected.scores[i], static_cast<int32_t>(expected.ids[i])})) {
      continue;
    }
    expected.scores[i] = std::nanf("");
    expected.ids[i] = -1;
  }
  for (const Found& found : {InBlocks<WideTile>(in, k), InBlocks<LowTile>(in, k)}) {
    EXPECT_EQ(found.ids, expected.ids);
    for (size_t i = 0; i < expected.scores.size(); ++i) {
      const float score = expected.scores[i];
      if (!(std::abs(score) < 1e30f)) {
        EXPECT_TRUE(std::isnan(score) ? std::isnan(found.scores[i]) : found.scores[i] == score);
      } else {
        EXPECT_NEAR(found.scores[i], score, 1e-5 * (1 + std::abs(score)));
      }
    }
  }
}

TEST(TopKBodyFindsTheClassesOfTheCpu) {
  for (const ScanProblem& in : ScanProblems()) {
    for (const int64_t k : {1, 7, 300}) ExpectSame(in, std::min(k, in.num_classes));
  }
}

TEST(TopKBodyTakesTheLowerIdOfEqualScores) {
  ScanProblem in(20, 3000, 3, 0);
  in.Coarsen();
  for (const int64_t k : {1, 40, 700}) ExpectSame(in, k);
  std::fill(in.data.begin(), in.data.end(), 0.0f);
  std::fill(in.bias.begin(), in.bias.end(), 0.0f);
  ExpectSame(in, 40);
}

TEST(TopKBodyTakesRisingScoresThatAllGoThroughTheLists) {
  ScanProblem in(3, 5000, 1, 0);
  for (int64_t c = 0; c < 5000; ++c) in.embeddings[c] = in.bias[c] = static_cast<float>(c);
  in.data = {1.0f, -1.0f, 0.5f};
  ExpectSame(in, 33);
}

TEST(TopKBodyGivesNoIdsWhereLogitsOverflow) {
  ScanProblem in(3, 400, 4, 0);
  std::fill_n(in.data.begin() + 4, 4, 3e38f);  // row 1
  std::fill(in.embeddings.begin(), in.embeddings.end(), 2.0f);
  ExpectSame(in, 5);
  for (const Found& found : {InBlocks<WideTile>(in, 5), InBlocks<LowTile>(in, 5)}) {
    for (int64_t i = 0; i < 15; ++i) EXPECT_EQ(found.ids[i] == -1, i / 5 == 1);
  }
}

TEST(TopKBodyPutsNumbersThatAreNotFiniteLast) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  ScanProblem in(4, 600, 4, 0);
  in.data[4] = std::nanf("");  // row 1 has no numbers
  for (int64_t c = 5; c < 600; ++c) in.bias[c] = c % 2 == 0 ? std::nanf("") : -kInfinity;
  in.bias[1] = in.bias[3] = kInfinity;
  ExpectSame(in, 20);
  ExpectSame(in, 600);
}

}  // namespace
}  // namespace cuda
}  // namespace largeout
