#include "custom_ops/core/linear_algebra/dense_product.h"

#include <algorithm>
#include <random>
#include <vector>

#include "custom_ops/core/base/simd_level.h"
#include "custom_ops/core/base/testing.h"

namespace largeout {
namespace {

template <class Number = double>
PaddedMatrixOf<Number> RandomMatrix(int64_t rows, int64_t width, Arena* arena) {
  static std::mt19937_64 random(0);
  std::normal_distribution<double> normal;
  PaddedMatrixOf<Number> matrix(rows, width, arena);
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < width; ++j) matrix.row(i)[j] = normal(random);
  }
  return matrix;
}

// The expected element [i, j] of old + a b.
template <class Number>
double Expected(double old, const Strided<Number>& a, const PaddedMatrixOf<Number>& b,
                int64_t i, int64_t j) {
  for (int64_t k = 0; k < b.rows(); ++k) {
    old += static_cast<double>(a.data[i * a.row_stride + k * a.step]) * b.row(k)[j];
  }
  return old;
}

// Calls body(rows, depth, width).
template <class Body>
void ForEachSize(const Body& body) {
  testing::ForEachSimdLevel([&] {
    for (int64_t rows : {0, 1, 5, 6, 13, 49, 101}) {
      for (int64_t depth : {0, 1, 63, 130}) {
        for (int64_t width : {1, 16, 50, 101}) body(rows, depth, width);
      }
    }
  });
}

TEST(ProductsOfDoublesAreSumsOfProducts) {
  ForEachSize([](int64_t rows, int64_t depth, int64_t width) {
    for (bool transposed : {false, true}) {
      Arena arena(0);
      const PaddedMatrix a =
          transposed ? RandomMatrix(depth, rows, &arena) : RandomMatrix(rows, depth, &arena);
      const PaddedMatrix b = RandomMatrix(depth, width, &arena);
      const Strided<double> factor = transposed ? a.transposed() : a.view();
      PaddedMatrix out(rows, width, &arena), backwards(rows, width, &arena);
      out.Fill(0.5, SerialFor);
      backwards.Fill(0.5, SerialFor);
      AddProductInBlocks(factor, b, &out, SerialFor);
      AddProductInBlocks(factor, b, &backwards, testing::BackwardsFor);
      for (int64_t i = 0; i < rows; ++i) {
        for (int64_t j = 0; j < width; ++j) {
          EXPECT_NEAR(out.row(i)[j], Expected(0.5, factor, b, i, j), 1e-12);
          EXPECT_EQ(out.row(i)[j], backwards.row(i)[j]);
        }
      }
    }
  });
}

// Products added to contiguous rows of doubles.
template <class Number>
void CheckProductsToDoubles(double tolerance) {
  ForEachSize([&](int64_t rows, int64_t depth, int64_t width) {
    Arena arena(0);
    const auto a = RandomMatrix<Number>(depth, rows, &arena);
    const auto b = RandomMatrix<Number>(depth, width, &arena);
    std::vector<double> out(rows * width + 1, 1e9), backwards = out;
    AddProductToDoubles(rows, a.transposed(), b, out.data(), width, SerialFor);
    AddProductToDoubles(rows, a.transposed(), b, backwards.data(), width,
                        testing::BackwardsFor);
    EXPECT_TRUE(out == backwards);
    EXPECT_EQ(out[rows * width], 1e9);
    for (int64_t i = 0; i < rows * width; ++i) {
      EXPECT_NEAR(out[i], Expected(1e9, a.transposed(), b, i / width, i % width), tolerance);
    }
  });
}

TEST(ProductsAreAddedToDoublesWithoutRoundingThem) {
  CheckProductsToDoubles<double>(1e-5);
  CheckProductsToDoubles<float>(1e-4);
}

TEST(LowerProductsToDoublesHaveTheirBitsBelowTheDiagonal) {
  for (int64_t size : {1, 47, 48, 49, 130}) {
    Arena arena(0);
    const auto a = RandomMatrix<float>(size, 70, &arena);
    const auto b = RandomMatrix<float>(70, size, &arena);
    std::vector<double> whole(size * size, 1), lower = whole;
    AddProductToDoubles(size, a.view(), b, whole.data(), size, SerialFor);
    AddLowerProductToDoubles(size, a.view(), b, lower.data(), size, testing::BackwardsFor);
    for (int64_t i = 0; i < size; ++i) {
      for (int64_t j = 0; j <= i; ++j) EXPECT_EQ(lower[i * size + j], whole[i * size + j]);
    }
  }
}

TEST(LowerProductsHaveTheirBitsBelowTheDiagonal) {
  for (int64_t size : {1, 47, 48, 49, 130}) {
    Arena arena(0);
    const PaddedMatrix a = RandomMatrix(size, 70, &arena), b = RandomMatrix(70, size, &arena);
    PaddedMatrix whole(size, size, &arena), lower(size, size, &arena);
    whole.Fill(1, SerialFor);
    lower.Fill(1, SerialFor);
    AddProductInBlocks(a.view(), b, &whole, SerialFor);
    AddLowerProduct(a.view(), b, &lower, testing::BackwardsFor);
    for (int64_t i = 0; i < size; ++i) {
      for (int64_t j = 0; j <= i; ++j) EXPECT_EQ(lower.row(i)[j], whole.row(i)[j]);
    }
  }
}

TEST(TransposesOfTransposesAreTheMatrix) {
  for (int64_t rows : {1, 7, 8, 21}) {
    Arena arena(0);
    const PaddedMatrix matrix = RandomMatrix(rows, 11, &arena);
    PaddedMatrix transpose(11, rows, &arena), again(rows, 11, &arena);
    TransposeInto(matrix.data(), matrix.stride(), rows, 11, transpose.data(),
                  transpose.stride(), SerialFor);
    TransposeInto(transpose.data(), transpose.stride(), 11, rows, again.data(), again.stride(),
                  SerialFor);
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < 11; ++j) {
        EXPECT_EQ(transpose.row(j)[i], matrix.row(i)[j]);
        EXPECT_EQ(again.row(i)[j], matrix.row(i)[j]);
      }
    }
  }
}

TEST(PartsOfAnArenaDoNotOverlapAndStartAtCacheLines) {
  Arena arena(20);
  std::vector<double*> parts;
  for (int64_t size : {3, 8, 1, 100, 2}) {
    parts.push_back(arena.Take(size));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(parts.back()) % 64, 0);
    std::fill_n(parts.back(), size, static_cast<double>(size));
  }
  EXPECT_EQ(parts[0][2], 3.0);
  EXPECT_EQ(parts[1][7], 8.0);
  EXPECT_EQ(parts[2][0], 1.0);
  EXPECT_EQ(parts[3][99], 100.0);
}

}  // namespace
}  // namespace largeout
