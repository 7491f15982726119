#include "custom_ops/core/sampling/alias_table.h"

#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "custom_ops/core/base/testing.h"

namespace largeout {
namespace {

std::vector<int64_t> Masses(const std::vector<double>& weights, int64_t num_strata) {
  std::vector<int64_t> masses(weights.size());
  IntegerMasses(weights.data(), weights.size(), num_strata, masses.data());
  return masses;
}

// The mass that each class gets from all slots together, times the number of slots.
std::vector<__int128> Received(const std::vector<AliasSlot>& slots) {
  std::vector<__int128> received(slots.size());
  for (size_t c = 0; c < slots.size(); ++c) {
    received[c] += slots[c].threshold;
    received[slots[c].alias] += kAliasTotal - slots[c].threshold;
  }
  return received;
}

std::vector<std::vector<double>> Examples() {
  std::vector<double> zipf(1000), rising(777);
  for (size_t c = 0; c < zipf.size(); ++c) zipf[c] = 1 / std::pow(c + 1.0, 1.5);
  std::iota(rising.begin(), rising.end(), 1);
  return {{3}, {1, 1}, {1, 2, 3, 4}, {5, 1e-30, 5}, std::vector<double>(97, 0.1), zipf, rising};
}

TEST(AnAliasTableHasTheMassesExactly) {
  for (const auto& weights : Examples()) {
    const std::vector<int64_t> masses = Masses(weights, 1);
    const int64_t n = masses.size();
    std::vector<AliasSlot> slots(n);
    BuildAliasTable(masses.data(), n, slots.data());
    const auto received = Received(slots);
    int64_t wrong = 0;
    for (int64_t c = 0; c < n; ++c)
      wrong += received[c] != static_cast<__int128>(masses[c]) * n;
    EXPECT_EQ(wrong, 0);
  }
}

TEST(DrawsFollowTheTable) {
  const std::vector<int64_t> masses = Masses({1, 2, 3, 4}, 1);
  std::vector<AliasSlot> slots(4);
  BuildAliasTable(masses.data(), 4, slots.data());
  constexpr int kDraws = 200000;
  std::vector<int64_t> counts(4);
  for (int i = 0; i < kDraws; ++i)
    ++counts[DrawFromAliasTable(slots.data(), 4, BitsOfDraw({1, 2}, i))];
  for (int c = 0; c < 4; ++c) {
    const double q = (c + 1) / 10.0;
    EXPECT_NEAR(counts[c], kDraws * q, 5 * std::sqrt(kDraws * q * (1 - q)));
  }
}

TEST(MassesSumExactlyAndNoneIsEmptyOrAboveAStratum) {
  for (const auto& weights : Examples()) {
    for (int64_t num_strata : {1, 2, 3, 50, 776}) {
      if (num_strata > static_cast<int64_t>(weights.size())) continue;
      const std::vector<int64_t> masses = Masses(weights, num_strata);
      const int64_t stratum = StratumLength(num_strata);
      EXPECT_EQ(std::accumulate(masses.begin(), masses.end(), int64_t{0}),
                num_strata * stratum);
      for (int64_t mass : masses) EXPECT_TRUE(1 <= mass && mass <= stratum);
    }
  }
}

TEST(MassesAreInProportionBelowTheCap) {
  const std::vector<int64_t> masses = Masses({100, 1, 2, 3, 2}, 2);
  const double stratum = StratumLength(2);
  EXPECT_EQ(masses[0], StratumLength(2));
  for (int c : {1, 2, 3, 4}) {
    const double expected = std::vector<double>{0, 1, 2, 3, 2}[c] / 8;
    EXPECT_NEAR(masses[c] / stratum, expected, 1e-15);
  }
}

}  // namespace
}  // namespace largeout
