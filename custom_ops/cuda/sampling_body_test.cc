#include "custom_ops/cuda/sampling_body.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "custom_ops/core/integer_masses.h"
#include "custom_ops/core/log_uniform_distribution.h"
#include "custom_ops/core/testing.h"
#include "custom_ops/core/uniform_distribution.h"
#include "custom_ops/cuda/host_blocks.h"

namespace largeout {
namespace cuda {
namespace {

using Ids = std::vector<int64_t>;

using Seed = const int64_t (&)[2];
const int64_t kSeeds[][2] = {{0, 0}, {1, 2}, {-1, std::numeric_limits<int64_t>::min()}};

// What sampling.cu does without replacement, with a loop for the scan.
template <class Distribution, class Count>
Ids Unique(const Distribution& distribution, const Count& count, int64_t num_sampled, Seed seed,
           std::vector<float>* counts) {
  Ids ids(num_sampled, -7), jumpers(num_sampled, -7);
  counts->assign(num_sampled, -7);
  RunItems(num_sampled, FightStrata<Distribution>{distribution, num_sampled, seed, ids.data(),
                                                  jumpers.data()});
  for (int64_t i = 1; i < num_sampled; ++i) {
    jumpers[i] = LastClass()(jumpers[i - 1], jumpers[i]);
  }
  RunItems(num_sampled, NameJumpers<Count>{count, jumpers.data(), ids.data(), counts->data()});
  return ids;
}

template <class Distribution>
void ExpectTheDrawsOfTheCpu() {
  std::vector<float> counts;
  for (const int64_t num_classes : {1, 2, 17, 1000}) {
    for (const int64_t m : {1, 2, 16, 17, 999, 1000}) {
      if (m > num_classes) continue;
      const Distribution strata(num_classes, m), line(num_classes, 1);
      for (Seed seed : kSeeds) {
        Ids expected(m);
        SampleWithoutReplacement(strata, m, SeedAt(seed), SerialFor, expected.data());
        const LineCount<Distribution> count{strata, 1.0f};
        EXPECT_EQ(Unique(strata, count, m, seed, &counts), expected);
        for (int64_t i = 0; i < m; ++i) {
          EXPECT_EQ(counts[i], LengthInStrata(strata, expected[i]));
        }
        SampleWithReplacement(line, m, SeedAt(seed), SerialFor, expected.data());
        Ids ids(m, -7);
        const LineCount<Distribution> draws{line, static_cast<float>(m)};
        RunItems(m, DrawWithReplacement<Distribution>{draws, seed, ids.data(), counts.data()});
        EXPECT_EQ(ids, expected);
      }
    }
  }
}

TEST(UniformDrawsOnTheGpuAreThoseOfTheCpu) { ExpectTheDrawsOfTheCpu<UniformDistribution>(); }

TEST(LogUniformDrawsOnTheGpuAreThoseOfTheCpu) {
  ExpectTheDrawsOfTheCpu<LogUniformDistribution>();
}

struct Table {
  Table(const std::vector<double>& weights, int64_t num_strata, int64_t num_buckets)
      : cumulative(weights.size() + 1), index(num_buckets + 1) {
    const auto n = static_cast<int64_t>(weights.size());
    IntegerMasses(weights.data(), n, num_strata, &cumulative[1]);
    BuildCumulativeTable(&cumulative[1], n, num_buckets, cumulative.data(), index.data());
  }

  CumulativeTable For(int64_t num_strata) const {
    return CumulativeTable(cumulative.data(), static_cast<int64_t>(cumulative.size()) - 1,
                           index.data(), static_cast<int64_t>(index.size()) - 1, num_strata);
  }

  Ids cumulative, index;
};

TEST(PivotalDrawsOnTheGpuAreThoseOfTheCpu) {
  std::vector<double> weights(300);
  for (size_t c = 0; c < weights.size(); ++c) weights[c] = 1 + (c * c) % 97;
  weights[7] = 1e9;  // certain
  std::vector<float> counts;
  for (const int64_t m : {1, 5, 100, 299, 300}) {
    const Table made(weights, m, 60);
    const CumulativeTable table = made.For(m);
    for (Seed seed : kSeeds) {
      Ids expected(m);
      SampleWithoutReplacement(table, m, SeedAt(seed), SerialFor, expected.data());
      EXPECT_EQ(Unique(table, TableCount{table, m}, m, seed, &counts), expected);
      for (int64_t i = 0; i < m; ++i) EXPECT_EQ(counts[i], LengthInStrata(table, expected[i]));
    }
  }
}

TEST(ATableForAnotherNumberOfDrawsGivesClassesAndNan) {
  const Table made({1, 2, 3, 4, 5}, 2, 3);
  const CumulativeTable table = made.For(3);
  std::vector<float> counts;
  for (int64_t id : Unique(table, TableCount{table, 3}, 3, kSeeds[1], &counts)) {
    EXPECT_TRUE(0 <= id && id < 5);
  }
  for (float count : counts) EXPECT_TRUE(std::isnan(count));
}

struct Alias {
  explicit Alias(const Ids& masses) : slots(masses.size()), probability(masses.size()) {
    BuildAliasTable(masses.data(), static_cast<int64_t>(masses.size()), slots.data());
    for (size_t c = 0; c < masses.size(); ++c) {
      probability[c] = static_cast<float>(static_cast<double>(masses[c]) / kAliasTotal);
    }
  }

  void Draw(int64_t m, Seed seed) {
    ids.assign(m, -7);
    counts.assign(m, -7);
    const AliasCount count{probability.data(), static_cast<int64_t>(slots.size()), m};
    RunItems(m, DrawAlias{slots.data(), count, seed, ids.data(), counts.data()});
  }

  std::vector<AliasSlot> slots;
  std::vector<float> probability, counts;
  Ids ids;
};

TEST(AliasDrawsOnTheGpuAreThoseOfTheCpu) {
  Alias alias({kAliasTotal / 2, kAliasTotal / 4, kAliasTotal / 8, kAliasTotal / 8});
  for (Seed seed : kSeeds) {
    alias.Draw(100, seed);
    for (int64_t i = 0; i < 100; ++i) {
      const int64_t id = DrawFromAliasTable(alias.slots.data(), 4, BitsOfDraw(SeedAt(seed), i));
      EXPECT_EQ(alias.ids[i], id);
      EXPECT_EQ(alias.counts[i], 100 * alias.probability[id]);
    }
  }
}

TEST(ADamagedAliasTableGivesClassesAndNan) {
  Alias alias({kAliasTotal / 2, kAliasTotal / 2});
  alias.slots = {{0, 2}, {0, -5}};
  alias.Draw(20, kSeeds[1]);
  for (int64_t id : alias.ids) EXPECT_EQ(id, 0);
  for (float count : alias.counts) EXPECT_TRUE(std::isnan(count));
}

TEST(CountsOfTrueClassesAreOneForPaddingAndNanOutOfRange) {
  const Ids classes{-1, 0, 9, 10, -2};
  std::vector<float> counts(5);
  const UniformDistribution line(10, 2);
  RunItems(5, CountTrueClasses<LineCount<UniformDistribution>>{
                  {line, 1.0f}, classes.data(), counts.data()});
  EXPECT_EQ(counts[0], 1.0f);
  EXPECT_EQ(counts[1], 0.2f);
  EXPECT_EQ(counts[2], 0.2f);
  EXPECT_TRUE(std::isnan(counts[3]) && std::isnan(counts[4]));
}

}  // namespace
}  // namespace cuda
}  // namespace largeout
