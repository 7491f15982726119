#include "custom_ops/core/factored_output/factored_output.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "custom_ops/core/base/testing.h"
#include "custom_ops/core/factored_output/factored_output_testing.h"

namespace largeout {
namespace {

using Doubles = std::vector<double>;

template <class Number>
using Example = testing::FactoredExample<Number>;
using testing::FactoredDense;

// Calls body(num_classes, width, batch, num_targets).
template <class Body>
void ForEachShape(const Body& body) {
  body(1, 1, 1, 1);
  body(1, 5, 3, 2);
  body(3, 20, 2, 1);
  body(40, 6, 6, 2);  // the last batch of one form, and the first of the other
  body(40, 6, 7, 2);
  body(40, 6, 17, 3);
  body(30, 33, 7, 0);
}

TEST(FactoredScoresAreThoseOfAllLogits) {
  testing::ForEachSimdLevel([] {
    ForEachShape([](int64_t num_classes, int64_t width, int64_t batch, int64_t num_targets) {
      Example<double> e(num_classes, width, batch, num_targets);
      const FactoredDense dense = e.Weights();
      e.Score(SerialFor);
      for (int64_t j = 0; j < batch; ++j) {
        double q = 0, s = 0;
        for (int64_t c = 0; c < num_classes; ++c) {
          const double logit = dense.Logit(c, &e.features[j * width]);
          q += logit * logit;
          s += logit;
        }
        EXPECT_NEAR(e.q[j], q, 1e-10 * (1 + q));
        EXPECT_NEAR(e.s[j], s, 1e-10 * (1 + std::abs(s)));
        for (int64_t i = j * num_targets; i < (j + 1) * num_targets; ++i) {
          const double logit = e.ids[i] < 0 ? 0 : dense.Logit(e.ids[i], &e.features[j * width]);
          EXPECT_NEAR(e.a[i], logit, 1e-10);
        }
      }
    });
  });
}

// W - learning_rate E H', and W'E by example.
template <class Number>
void ExpectStep(Example<Number>* e, double tolerance) {
  constexpr double kLearningRate = 0.05;
  FactoredDense dense = e->Weights();
  const Doubles by_logits = e->ByLogits(dense);
  Doubles by_features(e->batch * e->width);
  for (int64_t j = 0; j < e->batch; ++j) {
    for (int64_t c = 0; c < e->num_classes; ++c) {
      for (int64_t k = 0; k < e->width; ++k) {
        by_features[j * e->width + k] +=
            by_logits[j * e->num_classes + c] * dense.weights[c * e->width + k];
      }
    }
  }
  for (int64_t i = 0; i < e->num_classes * e->width; ++i) {
    for (int64_t j = 0; j < e->batch; ++j) {
      dense.weights[i] -= kLearningRate * by_logits[j * e->num_classes + i / e->width] *
                          e->features[j * e->width + i % e->width];
    }
  }
  const FactoredOutcome outcome = e->Step(kLearningRate);
  EXPECT_TRUE(outcome.not_finite == nullptr);
  EXPECT_GE(outcome.smallest_pivot, 1e-6);
  const Doubles weights = e->Weights().weights, total = e->total, gram = e->gram;
  for (size_t i = 0; i < weights.size(); ++i) {
    EXPECT_NEAR(weights[i], dense.weights[i], tolerance);
  }
  for (size_t i = 0; i < by_features.size(); ++i) {
    EXPECT_NEAR(e->by_features[i], by_features[i], tolerance * 100);
  }
  std::fill(e->total.begin(), e->total.end(), 0.0);
  std::fill(e->gram.begin(), e->gram.end(), 0.0);
  e->KeepSums();
  for (size_t i = 0; i < total.size(); ++i) EXPECT_NEAR(total[i], e->total[i], tolerance * 100);
  for (size_t i = 0; i < gram.size(); ++i) EXPECT_NEAR(gram[i], e->gram[i], tolerance * 1000);
  const Doubles inverse = e->inverse;
  std::fill(e->inverse.begin(), e->inverse.end(), 0.0);
  e->Invert();
  for (size_t i = 0; i < inverse.size(); ++i) EXPECT_NEAR(inverse[i], e->inverse[i], 1e-8);
}

TEST(AFactoredStepIsGradientDescentOnAllWeights) {
  testing::ForEachSimdLevel([] {
    ForEachShape([](int64_t num_classes, int64_t width, int64_t batch, int64_t num_targets) {
      Example<double> doubles(num_classes, width, batch, num_targets);
      ExpectStep(&doubles, 1e-10);
      Example<float> floats(num_classes, width, batch, num_targets);
      ExpectStep(&floats, 1e-5);
    });
  });
}

TEST(AStepWhoseProductsOverflowFloatsUsesDoubles) {
  constexpr double kLarge = 1e25;  // its square overflows a float
  Example<float> e(40, 20, 5, 2);
  for (double& feature : e.features) feature *= kLarge;
  for (double& slope : e.by_q) slope /= kLarge * kLarge;
  for (double& slope : e.by_s) slope /= kLarge;
  for (double& slope : e.by_a) slope /= kLarge;
  ExpectStep(&e, 1e-5);
  for (double& number : e.mixing) number *= kLarge;
  e.Score(SerialFor);
  for (int64_t j = 0; j < e.batch; ++j) {
    double mixed = 0;
    for (int64_t k = 0; k < e.width; ++k) mixed += e.mixing[k] * e.features[j * e.width + k];
    EXPECT_NEAR(e.mixed_features[j * e.width] / mixed, 1, 1e-10);
  }
}

TEST(ANearlySingularStepUsesDoubles) {
  Example<float> e(40, 20, 5, 2);
  double square = 0;
  for (int64_t k = 0; k < e.width; ++k) square += e.features[k] * e.features[k];
  std::fill(e.by_q.begin(), e.by_q.end(), 0.0);
  e.by_q[0] = (1 - 1e-4) / (2 * 0.05 * square);
  EXPECT_LT(e.Step(0.05).smallest_pivot, 1e-2);
  for (int64_t i = 0; i < e.width; ++i) {
    for (int64_t j = 0; j < e.width; ++j) {
      double product = 0;
      for (int64_t k = 0; k < e.width; ++k) {
        product += e.mixing[i * e.width + k] * e.inverse[k * e.width + j];
      }
      EXPECT_NEAR(product, i == j ? 1.0 : 0.0, 1e-9);
    }
  }
}

TEST(ThreadsDoNotChangeTheBitsOfAFactoredStep) {
  ForEachShape([](int64_t num_classes, int64_t width, int64_t batch, int64_t num_targets) {
    Example<float> e(num_classes, width, batch, num_targets), other = e;
    e.Step(0.01);
    other.Step(0.01, testing::BackwardsFor);
    EXPECT_TRUE(e.Everything() == other.Everything());
  });
}

TEST(AFactoredStepThatIsRefusedWritesNothing) {
  Example<double> e(40, 6, 1, 3);
  double square = 0;
  for (double number : e.features) square += number * number;
  e.by_q[0] = 1 / (2 * 0.05 * square);  // 1 - 2 eta h'h gamma is 0
  Doubles before = e.Everything();
  EXPECT_LT(e.Step(0.05).smallest_pivot, 1e-6);
  std::copy(e.by_features.begin(), e.by_features.end(), before.end() - 6);
  EXPECT_TRUE(e.Everything() == before);
  e.by_q[0] = 0.1;
  e.offset[2] = std::numeric_limits<double>::max();
  e.by_s[0] = -std::numeric_limits<double>::max();
  before = e.Everything();
  EXPECT_TRUE(e.Step(100).not_finite != nullptr);
  std::copy(e.by_features.begin(), e.by_features.end(), before.end() - 6);
  for (size_t i = 0; i + 6 < before.size(); ++i) EXPECT_EQ(e.Everything()[i], before[i]);
}

}  // namespace
}  // namespace largeout
