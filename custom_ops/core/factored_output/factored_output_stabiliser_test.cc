#include "custom_ops/core/factored_output/factored_output_stabiliser.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "custom_ops/core/base/testing.h"
#include "custom_ops/core/factored_output/factored_output_testing.h"

namespace largeout {
namespace {

using Doubles = std::vector<double>;
using Example = testing::FactoredExample<double>;

constexpr int64_t kClasses = 40, kWidth = 12;

// U becomes U (I + (value - 1) d d') for a random direction d.
void Stretch(double value, Example* e) {
  Doubles direction = e->Random(e->width, 1);
  const double norm = std::sqrt(SumOfSquares(direction.data(), e->width));
  for (double& number : direction) number /= norm;
  for (int64_t i = 0; i < e->width; ++i) {
    double* row = &e->mixing[i * e->width];
    double along = 0;
    for (int64_t k = 0; k < e->width; ++k) along += row[k] * direction[k];
    for (int64_t k = 0; k < e->width; ++k) row[k] += (value - 1) * along * direction[k];
  }
  std::fill(e->inverse.begin(), e->inverse.end(), 0.0);
  e->Invert();
}

int64_t Run(Example* e, bool invert = false) {
  const double before = e->log[0];
  FactoredStabiliser(e->width, invert)
      .Run(e->mixing.data(), e->inverse.data(), e->state().folds, SerialFor);
  return static_cast<int64_t>(e->log[0] - before);
}

void ExpectInRangeAndEqual(const Example& e, const Doubles& weights, double tolerance) {
  EXPECT_LT(SumOfSquares(e.mixing.data(), kWidth * kWidth), 225 * kWidth);
  EXPECT_LT(SumOfSquares(e.inverse.data(), kWidth * kWidth), 225 * kWidth);
  const Doubles found = e.Weights().weights;
  for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], weights[i], tolerance);
  for (int64_t i = 0; i < kWidth; ++i) {
    for (int64_t j = 0; j < kWidth; ++j) {
      double product = 0;
      for (int64_t k = 0; k < kWidth; ++k) {
        product += e.mixing[i * kWidth + k] * e.inverse[k * kWidth + j];
      }
      EXPECT_NEAR(product, i == j ? 1.0 : 0.0, tolerance);
    }
  }
}

TEST(FactorsInRangeDoNotChange) {
  Example e(kClasses, kWidth, 1, 1);
  const Doubles before = e.Everything();
  EXPECT_EQ(Run(&e), 0);
  EXPECT_TRUE(e.Everything() == before);
}

TEST(AFoldOfADirectionDoesNotChangeTheWeights) {
  for (const double value : {1e-4, 1e-7, 1e4}) {
    Example e(kClasses, kWidth, 1, 1);
    Stretch(value, &e);
    const Doubles weights = e.Weights().weights;
    const int64_t folds = Run(&e);
    EXPECT_TRUE(1 <= folds && folds <= 2);
    ExpectInRangeAndEqual(e, weights, 1e-7);
  }
}

TEST(SeveralDirectionsAreFoldedAtOnce) {
  Example e(kClasses, kWidth, 1, 1);
  for (const double value : {1e-4, 1e4}) Stretch(value, &e);
  const Doubles weights = e.Weights().weights;
  EXPECT_GE(Run(&e), 2);
  ExpectInRangeAndEqual(e, weights, 1e-6);
}

TEST(FoldingAllDirectionsScalesTheRows) {
  for (const double scale : {0.01, 300.0}) {
    Example e(kClasses, kWidth, 1, 1);
    for (double& number : e.mixing) number *= scale;
    for (double& number : e.inverse) number /= scale;
    const Doubles weights = e.Weights().weights;
    EXPECT_EQ(Run(&e), 1);
    ExpectInRangeAndEqual(e, weights, 1e-9 * scale);
    EXPECT_LT(SumOfSquares(e.mixing.data(), kWidth * kWidth), 4 * kWidth);
  }
}

TEST(TheInverseIsRecomputed) {
  Example e(kClasses, kWidth, 1, 1);
  const Doubles inverse = e.inverse;
  std::fill(e.inverse.begin(), e.inverse.end(), 1.0);
  Run(&e, true);
  for (size_t i = 0; i < inverse.size(); ++i) EXPECT_NEAR(e.inverse[i], inverse[i], 1e-12);
  std::fill(e.mixing.begin(), e.mixing.end(), 0.0);
  Run(&e, true);  // a singular matrix has no inverse
  for (size_t i = 0; i < inverse.size(); ++i) EXPECT_NEAR(e.inverse[i], inverse[i], 1e-12);
}

TEST(RowsTakeAllFoldsAndKeepTheWeights) {
  testing::FactoredExample<float> e(kClasses, kWidth, 1, 1);
  const Doubles weights = e.Weights().weights;
  TakeAllFolds(e.state(), SerialFor);
  EXPECT_EQ(e.log[0], 0.0);
  for (const uint32_t seen : e.seen) EXPECT_EQ(seen, 0u);
  const Doubles found = e.Weights().weights;
  for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], weights[i], 2e-6);
}

TEST(AFoldLogOfArbitraryNumbersIsSafe) {
  for (const double bad : {-1e300, -1.0, 1e300, 1.0 / 0.0, 0.0 / 0.0}) {
    Example e(kClasses, kWidth, 3, 2);
    std::fill(e.log.begin(), e.log.end(), bad);
    std::fill(e.seen.begin(), e.seen.end(), 7u);
    e.Step(0.05);
    TakeAllFolds(e.state(), SerialFor);
  }
}

}  // namespace
}  // namespace largeout
