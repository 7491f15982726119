#include "custom_ops/core/matmul.h"

#include <random>
#include <vector>

#include "custom_ops/core/simd_level.h"
#include "custom_ops/core/testing.h"

namespace largeout {
namespace {

// [rows, columns] of random numbers: row-major, or as the transpose of such a matrix.
class Factor {
 public:
  Factor(int64_t rows, int64_t columns, bool transposed) : numbers_(rows * columns) {
    static std::mt19937 random(0);
    std::normal_distribution<float> normal;
    for (float& number : numbers_) number = normal(random);
    view_ = transposed ? Strided<float>{numbers_.data(), 1, rows}
                       : Strided<float>{numbers_.data(), columns, 1};
  }
  const Strided<float>& view() const { return view_; }
  double at(int64_t i, int64_t k) const {
    return view_.data[i * view_.row_stride + k * view_.step];
  }

 private:
  std::vector<float> numbers_;
  Strided<float> view_;
};

void ExpectProduct(const ProductSize& size, bool transpose_a, bool transpose_b) {
  const Factor a(size.rows, size.depth, transpose_a), b(size.depth, size.width, transpose_b);
  std::vector<float> out(size.rows * size.width, 7.0f), backwards(out);
  Multiply(size, a.view(), b.view(), SerialFor, out.data());
  Multiply(size, a.view(), b.view(), testing::BackwardsFor, backwards.data());
  for (int64_t i = 0; i < size.rows; ++i) {
    for (int64_t j = 0; j < size.width; ++j) {
      double sum = 0;
      for (int64_t k = 0; k < size.depth; ++k) sum += a.at(i, k) * b.at(k, j);
      EXPECT_NEAR(out[i * size.width + j], sum, 1e-4);
      EXPECT_EQ(out[i * size.width + j], backwards[i * size.width + j]);
    }
  }
}

TEST(ProductsOfFloatsAreSumsOfProducts) {
  testing::ForEachSimdLevel([] {
    for (int64_t rows : {0, 1, 7, 49, 300}) {
      for (int64_t depth : {0, 1, 65, 130}) {
        for (int64_t width : {0, 1, 16, 70, 130}) {
          ExpectProduct({rows, depth, width}, false, false);
          ExpectProduct({rows, depth, width}, true, false);
          ExpectProduct({rows, depth, width}, false, true);
          ExpectProduct({rows, depth, width}, true, true);
        }
      }
    }
  });
}

}  // namespace
}  // namespace largeout
