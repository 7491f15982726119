#include "custom_ops/core/sampling/sampling.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <set>
#include <vector>

#include "custom_ops/core/base/testing.h"
#include "custom_ops/core/sampling/cumulative_table.h"
#include "custom_ops/core/sampling/integer_masses.h"
#include "custom_ops/core/sampling/log_uniform_distribution.h"
#include "custom_ops/core/sampling/uniform_distribution.h"

namespace largeout {
namespace {

// A table that owns its arrays.
class OwnedTable {
 public:
  OwnedTable(const std::vector<double>& weights, int64_t num_strata, int64_t num_buckets)
      : cumulative_(weights.size() + 1), index_(num_buckets + 1), num_strata_(num_strata) {
    IntegerMasses(weights.data(), weights.size(), num_strata, &cumulative_[1]);
    BuildCumulativeTable(&cumulative_[1], weights.size(), num_buckets, cumulative_.data(),
                         index_.data());
  }

  CumulativeTable view() const {
    return CumulativeTable(cumulative_.data(), cumulative_.size() - 1, index_.data(),
                           index_.size() - 1, num_strata_);
  }

 private:
  std::vector<int64_t> cumulative_;
  std::vector<int64_t> index_;
  int64_t num_strata_;
};

// The properties of a distribution: classes are adjacent without gaps, and Find inverts
// Cumulative.
template <class Distribution>
void CheckLine(const Distribution& distribution, int64_t num_strata) {
  const int64_t n = distribution.num_classes();
  EXPECT_EQ(distribution.Cumulative(0), 0);
  EXPECT_EQ(distribution.Cumulative(n), num_strata * distribution.stratum());
  int64_t wrong = 0;
  for (int64_t c = 0; c < n; ++c) {
    const int64_t begin = distribution.Cumulative(c), end = distribution.Cumulative(c + 1);
    wrong += begin >= end || end - begin > distribution.stratum();
    wrong += distribution.Find(begin) != c || distribution.Find(end - 1) != c;
  }
  EXPECT_EQ(wrong, 0);
}

// Counts classes over samples and compares the counts with the lengths, at 5 sigma.
template <class Distribution>
void CheckFrequencies(const Distribution& distribution, int64_t num_sampled, bool unique) {
  constexpr int kSamples = 30000;
  const int64_t n = distribution.num_classes();
  std::vector<int64_t> counts(n), ids(num_sampled);
  int64_t repeats = 0;
  for (uint64_t sample = 0; sample < kSamples; ++sample) {
    if (unique) {
      SampleWithoutReplacement(distribution, num_sampled, {sample, 5}, SerialFor, ids.data());
      repeats += num_sampled - std::set<int64_t>(ids.begin(), ids.end()).size();
    } else {
      SampleWithReplacement(distribution, num_sampled, {sample, 5}, SerialFor, ids.data());
    }
    for (int64_t id : ids) ++counts[id];
  }
  EXPECT_EQ(repeats, 0);
  const double draws = unique ? kSamples : static_cast<double>(kSamples) * num_sampled;
  for (int64_t c = 0; c < n; ++c) {
    const double p = LengthInStrata(distribution, c);
    EXPECT_NEAR(counts[c], draws * p, 5 * std::sqrt(draws * p * (1 - p)) + 0.01);
  }
}

template <class Distribution>
void CheckClosedForm() {
  for (int64_t num_classes : {1, 2, 7, 30}) {
    for (int64_t num_sampled : {1, 2, 5, 29, 30}) {
      if (num_sampled > num_classes) continue;
      const Distribution distribution(num_classes, num_sampled);
      CheckLine(distribution, num_sampled);
      CheckFrequencies(distribution, num_sampled, true);
    }
    CheckFrequencies(Distribution(num_classes, 1), 3, false);
  }
}

TEST(UniformSamplesOccurAsOftenAsExpected) { CheckClosedForm<UniformDistribution>(); }

TEST(LogUniformSamplesOccurAsOftenAsExpected) { CheckClosedForm<LogUniformDistribution>(); }

TEST(TableSamplesOccurAsOftenAsExpected) {
  const std::vector<double> weights = {1, 50, 3, 3, 1e-9, 20, 7, 400, 1, 2, 2};
  for (int64_t num_sampled : {1, 2, 4, 10, 11}) {
    const OwnedTable table(weights, num_sampled, 3);
    CheckLine(table.view(), num_sampled);
    CheckFrequencies(table.view(), num_sampled, true);
  }
}

TEST(ClassesThatBeginAtTheEndOfAStratumAreSampledToo) {
  const OwnedTable table({1, 1, 2, 2, 1, 1, 2, 2}, 6, 4);  // pi: 0.5 and 1
  const CumulativeTable view = table.view();
  EXPECT_EQ(view.Cumulative(2), view.stratum());
  EXPECT_EQ(view.Cumulative(4), 3 * view.stratum());
  CheckFrequencies(view, 6, true);
}

// Without limits on the entries, sums would overflow, which UBSan reports.
TEST(ADamagedTableStillGivesClasses) {
  constexpr int64_t kNumClasses = 8, kNumSampled = 7;
  constexpr int64_t kLowest = std::numeric_limits<int64_t>::min();
  constexpr int64_t kHighest = std::numeric_limits<int64_t>::max();
  const int64_t total = kNumSampled * StratumLength(kNumSampled);
  for (const int64_t wrong : {kLowest, kHighest, int64_t{-1}, total + 1}) {
    for (int64_t place = 0; place < kNumClasses; ++place) {
      std::vector<int64_t> cumulative(kNumClasses + 1), index(kNumClasses + 1);
      for (int64_t c = 1; c <= kNumClasses; ++c) cumulative[c] = c * (total / kNumClasses);
      cumulative[kNumClasses] = total;
      for (int64_t c = 0; c < kNumClasses; ++c) index[c] = c;
      cumulative[place] = wrong;
      const CumulativeTable table(cumulative.data(), kNumClasses, index.data(), kNumClasses,
                                  kNumSampled);
      for (int64_t c = 0; c < kNumClasses; ++c) LengthInStrata(table, c);
      std::vector<int64_t> ids(kNumSampled);
      for (uint64_t seed = 0; seed < 100; ++seed) {
        SampleWithoutReplacement(table, kNumSampled, {seed, 0}, SerialFor, ids.data());
        for (const int64_t id : ids) EXPECT_TRUE(0 <= id && id < kNumClasses);
      }
    }
  }
}

TEST(EveryPairOfClassesCanOccurTogether) {
  constexpr int64_t kClasses = 8, kSampled = 3;
  std::set<std::pair<int64_t, int64_t>> pairs;
  std::vector<int64_t> ids(kSampled);
  for (uint64_t sample = 0; sample < 10000; ++sample) {
    SampleWithoutReplacement(UniformDistribution(kClasses, kSampled), kSampled, {sample, 0},
                             SerialFor, ids.data());
    for (int64_t a : ids) {
      for (int64_t b : ids) pairs.insert({a, b});
    }
  }
  EXPECT_EQ(pairs.size(), kClasses * kClasses);
}

TEST(ASampleDoesNotDependOnHowTheStrataAreDivided) {
  const ParallelFor backwards_one_by_one = [](int64_t total, int64_t, const auto& work) {
    for (int64_t i = total - 1; i >= 0; --i) work(i, i + 1);
  };
  const LogUniformDistribution distribution(1000, 100);
  std::vector<int64_t> serial(100), parallel(100);
  for (uint64_t seed = 0; seed < 20; ++seed) {
    SampleWithoutReplacement(distribution, 100, {seed, 0}, SerialFor, serial.data());
    SampleWithoutReplacement(distribution, 100, {seed, 0}, backwards_one_by_one,
                             parallel.data());
    EXPECT_EQ(serial, parallel);
  }
}

TEST(LargeLogUniformDistributionsAreExactAtBothEnds) {
  for (int64_t num_classes : {100000000LL, 2000000000LL}) {
    for (int64_t num_sampled : {1LL, 1024LL, 1LL << 20}) {
      const LogUniformDistribution distribution(num_classes, num_sampled);
      EXPECT_EQ(distribution.Cumulative(num_classes), num_sampled * distribution.stratum());
      for (int64_t c :
           {int64_t{0}, int64_t{1}, num_sampled, num_classes / 3, num_classes - 1}) {
        EXPECT_EQ(distribution.Find(distribution.Cumulative(c)), c);
        EXPECT_EQ(distribution.Find(distribution.Cumulative(c + 1) - 1), c);
      }
      const double tail = static_cast<double>(distribution.Cumulative(num_classes - 1) -
                                              distribution.Cumulative(num_classes - 2));
      const double before = static_cast<double>(distribution.Cumulative(num_classes / 2 + 1) -
                                                distribution.Cumulative(num_classes / 2));
      EXPECT_NEAR(tail / before, 0.5, 1e-4);
    }
  }
}

}  // namespace
}  // namespace largeout
