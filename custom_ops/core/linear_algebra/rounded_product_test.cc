#include "custom_ops/core/linear_algebra/rounded_product.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "custom_ops/core/base/testing.h"
#include "custom_ops/core/class_scan/class_scan_bfloat16.h"

namespace largeout {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

float Rounded(float x) {
  const uint32_t bits = uint32_t{RoundToBfloat16(x)} << 16;
  float result;
  std::memcpy(&result, &bits, sizeof(result));
  return result;
}

// A random factor that owns its data.
struct Matrix {
  Matrix(int64_t rows, int64_t columns, bool transposed, int seed)
      : data(rows * columns), rows(rows), columns(columns), transposed(transposed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (float& number : data) number = normal(random);
  }
  Factor factor() const { return {data.data(), rows, columns, transposed}; }
  float& at(int64_t row, int64_t column) {
    return data[transposed ? column * rows + row : row * columns + column];
  }

  std::vector<float> data;
  int64_t rows, columns;
  bool transposed;
};

std::vector<float> Product(const Matrix& a, const Matrix& b,
                           const ParallelFor& parallel = SerialFor) {
  std::vector<float> product(a.rows * b.columns, kNaN);
  RoundedProduct(a.factor(), b.factor(), parallel, product.data());
  return product;
}

void CheckProduct(Matrix a, Matrix b) {
  const std::vector<float> product = Product(a, b);
  for (int64_t r = 0; r < a.rows; ++r) {
    for (int64_t c = 0; c < b.columns; ++c) {
      double sum = 0, sizes = 0;
      for (int64_t k = 0; k < a.columns; ++k) {
        const double term = double{Rounded(a.at(r, k))} * Rounded(b.at(k, c));
        sum += term;
        sizes += std::abs(term);
      }
      EXPECT_NEAR(product[r * b.columns + c], sum, 1e-6 * sizes);
    }
  }
  EXPECT_EQ(Product(a, b, testing::BackwardsFor), product);
}

TEST(RoundedProductsAreThoseOfRoundedNumbers) {
  testing::ForEachProductLevel([] {
    for (const bool a : {false, true}) {
      for (const bool b : {false, true}) {
        CheckProduct(Matrix(70, 33, a, 1), Matrix(33, 45, b, 2));
        CheckProduct(Matrix(32, 64, a, 1), Matrix(64, 96, b, 2));
        CheckProduct(Matrix(1, 1, a, 1), Matrix(1, 1, b, 2));
      }
    }
  });
}

TEST(RoundedProductsOfNothingAreZero) {
  for (const bool transposed : {false, true}) {
    EXPECT_EQ(Product(Matrix(2, 0, transposed, 1), Matrix(0, 3, transposed, 2)),
              std::vector<float>(6, 0.0f));
    EXPECT_EQ(Product(Matrix(0, 5, transposed, 1), Matrix(5, 3, transposed, 2)).size(), 0);
    EXPECT_EQ(Product(Matrix(3, 5, transposed, 1), Matrix(5, 0, transposed, 2)).size(), 0);
  }
}

TEST(NaNInOneRowDoesNotChangeOtherRowsOfARoundedProduct) {
  testing::ForEachProductLevel([] {
    for (const bool transposed : {false, true}) {
      Matrix a(40, 50, transposed, 1), b(50, 20, transposed, 2);
      const std::vector<float> expected = Product(a, b);
      a.at(7, 3) = kNaN;
      const std::vector<float> product = Product(a, b);
      for (int64_t i = 0; i < 40 * 20; ++i) {
        if (i / 20 == 7) {
          EXPECT_TRUE(std::isnan(product[i]));
        } else {
          EXPECT_EQ(product[i], expected[i]);
        }
      }
    }
  });
}

}  // namespace
}  // namespace largeout
