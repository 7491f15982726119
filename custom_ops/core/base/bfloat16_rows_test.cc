#include "custom_ops/core/base/bfloat16_rows.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "custom_ops/core/base/philox.h"
#include "custom_ops/core/base/testing.h"

namespace largeout {
namespace {

// `values` after they were stored in row `row` of a table with `step`.
std::vector<float> Rounded(const std::vector<float>& values, int64_t row, uint64_t step) {
  const auto dim = static_cast<int64_t>(values.size());
  std::vector<uint16_t> table((row + 1) * dim);
  StoreRounded(values.data(), dim, row, {table.data(), 17, step});
  std::vector<float> found(dim);
  WidenRow(table.data() + row * dim, dim, found.data());
  return found;
}

TEST(NumbersThatBfloat16HoldsStay) {
  const float largest = 3.38953139e38f;
  const std::vector<float> values = {0, -0.0f, 1, -1.5f, 1.0f / 128 + 1, largest, -largest, 5};
  for (uint64_t step = 0; step < 100; ++step) EXPECT_EQ(Rounded(values, 2, step), values);
}

TEST(InfinitiesAndNanStayAndFiniteNumbersStayFinite) {
  const float infinity = std::numeric_limits<float>::infinity();
  const float most = std::numeric_limits<float>::max();
  const uint32_t low_fraction = 0x7F800001;
  float nan;
  std::memcpy(&nan, &low_fraction, sizeof(nan));
  const auto found = Rounded({infinity, -infinity, nan, most, -most}, 0, 1);
  EXPECT_EQ(found[0], infinity);
  EXPECT_EQ(found[1], -infinity);
  EXPECT_EQ(std::isnan(found[2]), true);
  EXPECT_EQ(found[3], 3.38953139e38f);
  EXPECT_EQ(found[4], -3.38953139e38f);
}

TEST(TheBitsAreThoseOfPhilox) {
  testing::ForEachSimdLevel([] {
    for (int64_t dim : {1, 9, 64, 65, 200}) {
      constexpr int64_t kRow = 3;
      const RoundedRows seeds{nullptr, 5 + (uint64_t{7} << 40), 11 + (uint64_t{3} << 33)};
      // 1 + k / 2^16 of the way to the next number is rounded up if the random bits are at
      // least 2^16 - k.
      for (uint32_t k : {1u, 20000u, 65535u}) {
        const uint32_t one = 0x3F800000 + k;
        std::vector<float> values(dim);
        for (float& value : values) std::memcpy(&value, &one, sizeof(one));
        std::vector<uint16_t> table((kRow + 1) * dim);
        StoreRounded(values.data(), dim, kRow, {table.data(), seeds.seed, seeds.step});
        for (int64_t c = 0; c < dim; ++c) {
          const int64_t draw = 8 * (kRow * ((dim + 63) / 64) + c / 64) + c % 8;
          const DrawBits bits = BitsOfDraw({seeds.seed, seeds.step}, draw);
          const int64_t p = c % 64 / 8;
          const uint64_t half = p < 4 ? bits.first : bits.second;
          const auto random = static_cast<uint16_t>(half >> (16 * (p % 4)));
          EXPECT_EQ(table[kRow * dim + c], 0x3F80 + (random >= 65536 - k ? 1 : 0));
        }
      }
    }
  });
}

TEST(TheMeanIsTheNumber) {
  const std::vector<float> values = {1.001f, -3.3f, 1e-3f, 7.77e-20f, 1e-39f};
  std::vector<double> sums(values.size());
  constexpr int kSteps = 20000;
  for (int step = 0; step < kSteps; ++step) {
    const auto found = Rounded(values, 3, step);
    for (size_t i = 0; i < values.size(); ++i) sums[i] += found[i];
  }
  for (size_t i = 0; i < values.size(); ++i) {
    // The neighbours are at most 2^-7 of the number apart; a number below 2^-126 is less exact.
    const double apart = i < 4 ? std::abs(values[i]) / 128 : 1e-40;
    EXPECT_NEAR(sums[i] / kSteps, values[i], 5 * apart / 2 / std::sqrt(kSteps));
  }
}

TEST(RowsStepsAndColumnsDrawDifferentBits) {
  const std::vector<float> values(64, 1.0f + 1.0f / 256);  // halfway between two neighbours
  const auto found = Rounded(values, 1, 1);
  EXPECT_EQ(found == Rounded(values, 1, 1), true);
  EXPECT_EQ(found == Rounded(values, 1, 2), false);
  EXPECT_EQ(found == Rounded(values, 2, 1), false);
  int up = 0;
  for (float one : found) up += one > 1;
  EXPECT_EQ(up > 16 && up < 48, true);
}

}  // namespace
}  // namespace largeout
