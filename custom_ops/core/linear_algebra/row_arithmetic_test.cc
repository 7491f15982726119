#include "custom_ops/core/linear_algebra/row_arithmetic.h"

#include <random>
#include <vector>

#include "custom_ops/core/base/testing.h"

namespace largeout {
namespace {

template <class Number>
std::vector<Number> RandomRow(int64_t size) {
  static std::mt19937_64 random(0);
  std::normal_distribution<double> normal;
  std::vector<Number> row(size);
  for (Number& number : row) number = static_cast<Number>(normal(random));
  return row;
}

// Calls body(size) at each level, also for sizes that are not multiples of a vector.
template <class Body>
void ForEachSize(const Body& body) {
  testing::ForEachSimdLevel([&] {
    for (int64_t size : {0, 1, 7, 31, 32, 33, 301}) body(size);
  });
}

TEST(DotsOfDoublesAreSumsOfProducts) {
  ForEachSize([](int64_t size) {
    const auto a = RandomRow<double>(size), b = RandomRow<double>(size);
    double sum = 0;
    for (int64_t k = 0; k < size; ++k) sum += a[k] * b[k];
    EXPECT_NEAR(Dot(a.data(), b.data(), size), sum, 1e-12);
  });
}

template <class From, class To>
void CheckScaled(int64_t size) {
  const auto row = RandomRow<From>(size);
  std::vector<To> scaled(size + 1, To{9}), converted = scaled;
  ScaleRow(0.3, row.data(), size, scaled.data());
  ConvertRow(row.data(), size, converted.data());
  for (int64_t k = 0; k < size; ++k) {
    EXPECT_EQ(scaled[k], static_cast<To>(0.3 * row[k]));
    EXPECT_EQ(converted[k], static_cast<To>(row[k]));
  }
  EXPECT_EQ(scaled[size], To{9});
  EXPECT_EQ(converted[size], To{9});
}

TEST(ScaledRowsAreRoundedOnce) {
  ForEachSize([](int64_t size) {
    CheckScaled<float, float>(size);
    CheckScaled<float, double>(size);
    CheckScaled<double, float>(size);
    CheckScaled<double, double>(size);
  });
}

template <class Number>
void CheckAdded(int64_t size) {
  const auto row = RandomRow<Number>(size);
  std::vector<double> sum(size + 1, 9);
  AddScaledRow(0.3, row.data(), size, sum.data());
  for (int64_t k = 0; k < size; ++k) EXPECT_NEAR(sum[k], 9 + 0.3 * row[k], 1e-14);
  EXPECT_EQ(sum[size], 9.0);
}

TEST(RowsAreAddedInDouble) {
  ForEachSize([](int64_t size) {
    CheckAdded<float>(size);
    CheckAdded<double>(size);
  });
}

}  // namespace
}  // namespace largeout
