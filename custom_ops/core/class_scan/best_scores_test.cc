#include "custom_ops/core/class_scan/best_scores.h"

#include <algorithm>
#include <limits>
#include <random>

#include "custom_ops/core/base/testing.h"

namespace largeout {
namespace {

std::vector<float> RandomScores(int64_t size, int seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> scores(size);
  for (float& score : scores) score = normal(random);
  return scores;
}

TEST(SievePassesTheHighestAndFewOthers) {
  testing::ForEachSimdLevel([] {
    ScoreSieve sieve;
    for (int64_t size : {16, 64, 160, 1456, 4096}) {
      for (int64_t k : {1, 5, 16, 64}) {
        const std::vector<float> scores = RandomScores(size, 3);
        const std::vector<int32_t>& passed = sieve.Pass(scores.data(), size, k);
        EXPECT_TRUE(std::is_sorted(passed.begin(), passed.end()));
        std::vector<float> sorted = scores;
        std::sort(sorted.rbegin(), sorted.rend());
        const float kth = sorted[std::min(k, size) - 1];
        const int64_t highest = std::count_if(passed.begin(), passed.end(),
                                              [&](int32_t at) { return scores[at] >= kth; });
        EXPECT_EQ(highest, std::min(k, size));
        EXPECT_LE(passed.size(), std::max<int64_t>(4 * PaddedScores(2 * k), 64));
      }
    }
  });
}

TEST(SievePassesEqualScoresButNoNaNOrMinusInfinity) {
  testing::ForEachSimdLevel([] {
    ScoreSieve sieve;
    std::vector<float> scores(256, 2.0f);
    scores[7] = std::numeric_limits<float>::quiet_NaN();
    scores[9] = -std::numeric_limits<float>::infinity();
    EXPECT_EQ(sieve.Pass(scores.data(), 256, 4).size(), 254);
    std::fill(scores.begin(), scores.end(), scores[7]);
    EXPECT_EQ(sieve.Pass(scores.data(), 256, 4).size(), 0);
    scores[200] = -3e38f;
    EXPECT_EQ(sieve.Pass(scores.data(), 256, 4), (std::vector<int32_t>{200}));
  });
}

TEST(SievePassesFewAmongInfiniteScores) {
  testing::ForEachSimdLevel([] {
    ScoreSieve sieve;
    for (int64_t k : {4, 16}) {
      std::vector<float> scores = RandomScores(2048, 5);
      // Includes all scores of three of the groups, and many others.
      for (int64_t i = 0; i < 2048; ++i) {
        if (i % PaddedScores(2 * k) < 3 || i % 7 < 2) {
          scores[i] = -std::numeric_limits<float>::infinity();
        }
      }
      scores[70] = std::numeric_limits<float>::infinity();
      const std::vector<int32_t> passed = sieve.Pass(scores.data(), 2048, k);
      EXPECT_TRUE(std::count(passed.begin(), passed.end(), 70) == 1);
      EXPECT_GE(passed.size(), k);
      EXPECT_LE(passed.size(), 8 * k);
    }
  });
}

TEST(BestScoresComeFirstAndTiesAreOrderedById) {
  std::vector<ScoredClass> classes = {{1, 5}, {2, 7}, {1, 3}, {0, 1}, {2, 6}};
  KeepBest(3, &classes);
  std::vector<int32_t> ids;
  for (const ScoredClass& one : classes) ids.push_back(one.id);
  EXPECT_EQ(ids, (std::vector<int32_t>{6, 7, 3}));
}

}  // namespace
}  // namespace largeout
