#include "custom_ops/core/class_scan/packed_rows.h"

#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "custom_ops/core/base/testing.h"

namespace largeout {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

struct Packed {
  Packed(const std::vector<float>& values, const std::vector<float>& bias, int64_t dim,
         const std::vector<int32_t>& ids)
      : rows{nullptr, nullptr, static_cast<int64_t>(ids.size()), PackedWidth(dim)},
        codes(NumCodes(rows.num_rows, rows.width)),
        scales(NumScales(rows.num_rows)),
        bounds(NumBounds(rows.num_rows)) {
    rows.codes = codes.data();
    rows.scales = scales.data();
    rows.bounds = bounds.data();
    const ClassMatrix matrix = {values.data(), bias.data(), rows.num_rows, dim};
    PackAllRows(matrix, ids.data(), SerialFor, rows);
  }

  // Number k of a row, in units of its scale.
  int Number(int64_t row, int64_t k) const {
    const int64_t place = (k / 4 * kGroupRows + row % kGroupRows) * 4 + k % 4;
    return rows.group_codes(row / kGroupRows)[place] - kCodeOfZero;
  }
  float Scale(int64_t row) const {
    return rows.group_scales(row / kGroupRows)[row % kGroupRows];
  }
  float Bias(int64_t row) const {
    return rows.group_biases(row / kGroupRows)[row % kGroupRows];
  }

  PackedRows rows;
  std::vector<uint8_t> codes;
  std::vector<float> scales, bounds;
};

TEST(PackedNumbersAreWithinHalfACode) {
  testing::ForEachSimdLevel([] {
    for (int64_t dim : {1, 5, 16, 31, 32, 70}) {
      std::mt19937 random(dim);
      std::normal_distribution<float> normal;
      std::vector<float> values(20 * dim), bias(20);
      for (float& value : values) value = normal(random);
      std::vector<int32_t> ids(20);
      for (int i = 0; i < 20; ++i) bias[i] = i, ids[i] = 19 - i;
      const Packed packed(values, bias, dim, ids);
      for (int64_t row = 0; row < 20; ++row) {
        const float scale = packed.Scale(row);
        for (int64_t k = 0; k < packed.rows.width; ++k) {
          const float value = k < dim ? values[ids[row] * dim + k] : 0.0f;
          EXPECT_NEAR(packed.Number(row, k) * scale, value, 0.5001f * scale);
        }
        EXPECT_EQ(packed.Bias(row), ids[row]);
      }
      for (int64_t row = 20; row < 32; ++row) EXPECT_EQ(packed.Bias(row), -kInfinity);
    }
  });
}

TEST(RowsWithoutALogitGetABiasOfMinusInfinity) {
  testing::ForEachSimdLevel([] {
    const std::vector<float> values = {1, 2, kNaN, 1, 1, -kInfinity, 0, 0, 1e-40f, 0, 1, 1};
    const Packed packed(values, {0, 0, 0, 0, 0, kNaN}, 2, {0, 1, 2, 3, 4, 5});
    std::vector<int> finite;
    for (int64_t row = 0; row < 6; ++row) finite.push_back(packed.Bias(row) > -kInfinity);
    EXPECT_EQ(finite, (std::vector<int>{1, 0, 0, 1, 1, 0}));
    for (float scale : packed.scales) EXPECT_EQ(scale, scale);
    for (int64_t row : {1, 2, 3}) EXPECT_EQ(packed.Number(row, 0), 0);
  });
}

TEST(QueriesOfAnyWidthHaveSumsWithoutOverflow) {
  testing::ForEachSimdLevel([] {
    for (int64_t dim : {4, 50, 512, 1000000}) {
      std::vector<float> features(dim, 3.0f);
      features[1] = -1.0f;
      const QueryCodes queries({features.data(), 1}, dim, SerialFor);
      const PackedQueries& view = queries.view();
      EXPECT_LE(dim * 255 * view.codes[0], std::numeric_limits<int32_t>::max());
      EXPECT_LE(2 * 255 * view.codes[0], std::numeric_limits<int16_t>::max());
      EXPECT_EQ(view.sums[0], std::accumulate(view.codes, view.codes + view.width, 0));
      EXPECT_NEAR(view.codes[0] * view.scales[0], 3.0f, 1e-5);
      EXPECT_NEAR(view.codes[1] * view.scales[0], -1.0f, 0.5001f * view.scales[0]);
    }
  });
}

// A bound is at least the logit, and exceeds it by at most a few percent of the product of the
// norms.
TEST(BoundsHoldAndAreTight) {
  testing::ForEachSimdLevel([] {
    for (int64_t dim : {1, 16, 70, 300}) {
      std::mt19937 random(dim);
      std::normal_distribution<float> normal;
      std::vector<float> values(40 * dim), bias(40), features(dim);
      for (auto* numbers : {&values, &bias, &features}) {
        for (float& number : *numbers) number = normal(random);
      }
      std::vector<int32_t> ids(40);
      std::iota(ids.begin(), ids.end(), 0);
      const Packed packed(values, bias, dim, ids);
      const QueryCodes codes({features.data(), 1}, dim, SerialFor);
      const PackedQueries& query = codes.view();
      EXPECT_TRUE(codes.AreBounded());
      for (int64_t row = 0; row < 40; ++row) {
        double logit = bias[row], products = 0, squares = 0, query_squares = 0;
        for (int64_t k = 0; k < dim; ++k) {
          const double value = values[row * dim + k];
          logit += value * features[k];
          squares += value * value;
          query_squares += double{features[k]} * features[k];
          products += packed.Number(row, k) * double{query.scales[0]} * query.codes[k];
        }
        const float* bounds = packed.rows.group_bounds(row / kGroupRows) + row % kGroupRows;
        const double bound = products * packed.Scale(row) + bounds[0] * query.norms[0] +
                             bounds[kGroupRows] * query.errors[0] + bounds[2 * kGroupRows];
        EXPECT_TRUE(bound >= logit);
        EXPECT_LE(bound - logit, 0.06 * std::sqrt(squares * query_squares) + 1e-4);
      }
    }
  });
}

}  // namespace
}  // namespace largeout
