#include "custom_ops/core/packed_rows.h"

#include <limits>
#include <random>

#include "custom_ops/core/testing.h"

namespace largeout {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

struct Packed {
  Packed(const std::vector<float>& values, const std::vector<float>& bias, int64_t dim,
         const std::vector<int32_t>& places)
      : width(PackedWidth(dim)), codes(places.size() * width), scales(places.size()) {
    const int64_t num_rows = places.size();
    const ClassMatrix matrix = {values.data(), bias.data(), num_rows, dim};
    PackAllRows(matrix, places.data(), SerialFor,
                {codes.data(), scales.data(), num_rows, width});
  }
  int64_t width;
  std::vector<int8_t> codes;
  std::vector<RowScale> scales;
};

TEST(PackedNumbersAreWithinHalfACode) {
  testing::ForEachSimdLevel([] {
    for (int64_t dim : {1, 5, 16, 31, 32, 70}) {
      std::mt19937 random(dim);
      std::normal_distribution<float> normal;
      std::vector<float> values(3 * dim);
      for (float& value : values) value = normal(random);
      const Packed packed(values, {0, 1, 2}, dim, {2, 1, 0});
      for (int64_t k = 0; k < packed.width; ++k) {
        const float value = k < dim ? values[2 * dim + k] : 0.0f;
        const float scale = packed.scales[0].scale;
        EXPECT_NEAR(packed.codes[k] * scale, value, 0.5001f * scale);
      }
      EXPECT_EQ(packed.scales[0].bias, 2);
    }
  });
}

TEST(RowsWithoutALogitGetABiasOfMinusInfinity) {
  testing::ForEachSimdLevel([] {
    const std::vector<float> values = {1, 2, kNaN, 1, 1, -kInfinity, 0, 0, 1e-40f, 0, 1, 1};
    const Packed packed(values, {0, 0, 0, 0, 0, kNaN}, 2, {0, 1, 2, 3, 4, 5});
    std::vector<int> finite;
    for (const RowScale& scale : packed.scales) finite.push_back(scale.bias > -kInfinity);
    EXPECT_EQ(finite, (std::vector<int>{1, 0, 0, 1, 1, 0}));
    for (const RowScale& scale : packed.scales) EXPECT_EQ(scale.scale, scale.scale);
    for (int64_t row : {1, 2, 3}) EXPECT_EQ(int{packed.codes[row * packed.width]}, 0);
  });
}

TEST(QueriesOverflowNoSumHoweverWide) {
  for (int64_t dim : {4, 512, 100000}) {
    const std::vector<float> features(dim, 3.0f);
    const QueryCodes queries({features.data(), 1}, dim, SerialFor);
    const int64_t sum = dim * 127 * queries.view().codes[0];
    EXPECT_LE(sum, std::numeric_limits<int32_t>::max());
    EXPECT_NEAR(queries.view().codes[0] * queries.view().scales[0], 3.0f, 1e-5);
  }
}

}  // namespace
}  // namespace largeout
