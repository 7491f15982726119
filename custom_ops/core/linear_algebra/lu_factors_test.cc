#include "custom_ops/core/linear_algebra/lu_factors.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "custom_ops/core/base/testing.h"

namespace largeout {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

void FillAtRandom(PaddedMatrix* matrix) {
  std::mt19937_64 random(0);
  std::normal_distribution<double> normal;
  for (int64_t i = 0; i < matrix->rows(); ++i) {
    for (int64_t j = 0; j < matrix->width(); ++j) matrix->row(i)[j] = normal(random);
  }
}

PaddedMatrix Copy(const PaddedMatrix& from, Arena* arena) {
  PaddedMatrix copy(from.rows(), from.width(), arena);
  for (int64_t i = 0; i < from.rows(); ++i) {
    std::copy_n(from.row(i), from.width(), copy.row(i));
  }
  return copy;
}

TEST(SolutionsSatisfyTheirEquations) {
  testing::ForEachSimdLevel([] {
    for (int64_t size : {1, 2, 15, 16, 17, 33, 70}) {
      for (int64_t width : {1, 16, 37}) {
        Arena arena(0);
        PaddedMatrix matrix(size, size, &arena), right(size, width, &arena);
        FillAtRandom(&matrix);
        FillAtRandom(&right);
        PaddedMatrix factored = Copy(matrix, &arena), x = Copy(right, &arena);
        LuFactors<double> factors(&factored);
        EXPECT_GT(factors.Factor(1e-9, SerialFor), 1e-9);
        factors.Solve(&x, SerialFor);
        for (int64_t i = 0; i < size; ++i) {
          for (int64_t j = 0; j < width; ++j) {
            double sum = 0;
            for (int64_t k = 0; k < size; ++k) sum += matrix.row(i)[k] * x.row(k)[j];
            EXPECT_NEAR(sum, right.row(i)[j], 1e-9);
          }
        }
      }
    }
  });
}

TEST(PivotsMultiplyToTheDeterminantAndTheSmallestIsReturned) {
  Arena arena(0);
  PaddedMatrix matrix(2, 2, &arena);
  const double numbers[] = {1, 2, 4, 7};  // pivots 4 and 0.25
  matrix.CopyFrom(numbers, SerialFor);
  EXPECT_NEAR(LuFactors<double>(&matrix).Factor(0.1, SerialFor), 0.25, 1e-15);
  matrix.CopyFrom(numbers, SerialFor);
  EXPECT_NEAR(LuFactors<double>(&matrix).Factor(0.3, SerialFor), 0.25, 1e-15);
}

TEST(SingularMatricesHaveAPivotThatIsTooSmall) {
  for (int64_t size : {1, 5, 40}) {
    Arena arena(0);
    PaddedMatrix matrix(size, size, &arena);
    FillAtRandom(&matrix);
    std::copy_n(matrix.row(0), size, matrix.row(size - 1));
    if (size == 1) matrix.row(0)[0] = 0;
    EXPECT_LT(LuFactors<double>(&matrix).Factor(1e-9, SerialFor), 1e-9);
  }
}

TEST(NaNIsAPivotThatIsTooSmall) {
  for (int64_t row : {0, 7, 39}) {
    for (int64_t column : {0, 20, 39}) {
      Arena arena(0);
      PaddedMatrix matrix(40, 40, &arena);
      FillAtRandom(&matrix);
      matrix.row(row)[column] = kNan;
      EXPECT_TRUE(std::isnan(LuFactors<double>(&matrix).Factor(1e-9, SerialFor)));
    }
  }
}

}  // namespace
}  // namespace largeout
