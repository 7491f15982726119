#include "custom_ops/core/factored_output.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "custom_ops/core/testing.h"

namespace largeout {
namespace {

using Doubles = std::vector<double>;

void BackwardsFor(int64_t total, int64_t, const std::function<void(int64_t, int64_t)>& work) {
  for (int64_t i = total - 1; i >= 0; --i) work(i, i + 1);
}

// The weights W [num_classes, width] of a state, and what is computed from them by loops.
struct Dense {
  int64_t num_classes, width;
  Doubles weights;

  double Logit(int64_t c, const double* features) const {
    double sum = 0;
    for (int64_t k = 0; k < width; ++k) sum += weights[c * width + k] * features[k];
    return sum;
  }
};

// A layer in the middle of its training, some examples, and slopes as of some loss.
template <class Number>
struct Example {
  Example(int64_t num_classes, int64_t width, int64_t batch, int64_t num_targets)
      : num_classes(num_classes),
        width(width),
        batch(batch),
        num_targets(num_targets),
        vectors(num_classes * width),
        mixing(Random(width * width, 0.1)),
        inverse(width * width),
        offset(Random(width, 0.3)),
        total(width),
        gram(width * width),
        features(Random(batch * width, 0.5)),
        by_q(Random(batch, 0.1)),
        by_s(Random(batch, 0.1)),
        by_a(Random(batch * num_targets, 0.5)),
        ids(batch * num_targets),
        q(batch),
        s(batch),
        a(batch * num_targets),
        gram_features(batch * width),
        mixed_features(batch * width),
        by_features(batch * width) {
    for (Number& number : vectors) number = static_cast<Number>(normal(random));
    for (int64_t i = 0; i < width; ++i) mixing[i * width + i] += 2;
    for (int64_t& id : ids) id = static_cast<int64_t>(random() % (num_classes + 1)) - 1;
    for (size_t i = 0; i < ids.size(); ++i) by_a[i] *= ids[i] >= 0;
    Invert();
    KeepSums();
  }

  Doubles Random(int64_t size, double scale) {
    Doubles numbers(size);
    for (double& number : numbers) number = scale * normal(random);
    return numbers;
  }

  // Gauss and Jordan: U is near a multiple of I.
  void Invert() {
    Doubles rest = mixing;
    for (int64_t i = 0; i < width; ++i) inverse[i * width + i] = 1;
    for (int64_t i = 0; i < width; ++i) {
      for (int64_t r = 0; r < width; ++r) {
        const double factor = rest[r * width + i] / rest[i * width + i];
        for (int64_t k = 0; r != i && k < width; ++k) {
          rest[r * width + k] -= factor * rest[i * width + k];
          inverse[r * width + k] -= factor * inverse[i * width + k];
        }
      }
    }
    for (int64_t i = 0; i < width * width; ++i) inverse[i] /= rest[i / width * (width + 1)];
  }

  Dense Weights() const {
    Dense dense{num_classes, width, Doubles(num_classes * width)};
    for (int64_t c = 0; c < num_classes; ++c) {
      for (int64_t k = 0; k < width; ++k) {
        double sum = offset[k];
        for (int64_t i = 0; i < width; ++i) {
          sum += vectors[c * width + i] * mixing[i * width + k];
        }
        dense.weights[c * width + k] = sum;
      }
    }
    return dense;
  }

  void KeepSums() {
    const Doubles w = Weights().weights;
    for (int64_t c = 0; c < num_classes; ++c) {
      for (int64_t i = 0; i < width; ++i) {
        total[i] += w[c * width + i];
        for (int64_t k = 0; k < width; ++k) {
          gram[i * width + k] += w[c * width + i] * w[c * width + k];
        }
      }
    }
  }

  // The slopes by all logits [batch, num_classes]: 2 o gamma + sigma and those of targets.
  Doubles ByLogits(const Dense& dense) const {
    Doubles slopes(batch * num_classes);
    for (int64_t j = 0; j < batch; ++j) {
      for (int64_t c = 0; c < num_classes; ++c) {
        slopes[j * num_classes + c] =
            2 * by_q[j] * dense.Logit(c, &features[j * width]) + by_s[j];
      }
      for (int64_t i = j * num_targets; i < (j + 1) * num_targets; ++i) {
        if (ids[i] >= 0) slopes[j * num_classes + ids[i]] += by_a[i];
      }
    }
    return slopes;
  }

  FactoredState<Number> state() {
    return {vectors.data(), mixing.data(), inverse.data(), offset.data(),
            total.data(),   gram.data(),   num_classes,    width};
  }
  FactoredBatch examples() const { return {features.data(), ids.data(), batch, num_targets}; }

  void Score(const ParallelFor& parallel) {
    ScoreFactoredOutput(
        state(), examples(), parallel,
        {q.data(), s.data(), a.data(), gram_features.data(), mixed_features.data()});
  }

  FactoredOutcome Step(double learning_rate, const ParallelFor& parallel = SerialFor) {
    Score(parallel);
    return StepFactoredOutput(
        state(), examples(),
        {by_q.data(), by_s.data(), by_a.data(), gram_features.data(), mixed_features.data()},
        learning_rate, 1e-6, parallel, width, by_features.data());
  }

  Doubles Everything() const {
    Doubles all(vectors.begin(), vectors.end());
    for (const Doubles* part : {&mixing, &inverse, &offset, &total, &gram, &by_features}) {
      all.insert(all.end(), part->begin(), part->end());
    }
    return all;
  }

  std::mt19937_64 random{0};
  std::normal_distribution<double> normal;
  int64_t num_classes, width, batch, num_targets;
  std::vector<Number> vectors;
  Doubles mixing, inverse, offset, total, gram, features, by_q, by_s, by_a;
  std::vector<int64_t> ids;
  Doubles q, s, a, gram_features, mixed_features, by_features;
};

// Calls body(num_classes, width, batch, num_targets).
template <class Body>
void ForEachShape(const Body& body) {
  body(1, 1, 1, 1);
  body(1, 5, 3, 2);
  body(3, 20, 2, 1);
  body(40, 6, 17, 3);
  body(30, 33, 7, 0);
}

TEST(FactoredScoresAreThoseOfAllLogits) {
  testing::ForEachSimdLevel([] {
    ForEachShape([](int64_t num_classes, int64_t width, int64_t batch, int64_t num_targets) {
      Example<double> e(num_classes, width, batch, num_targets);
      const Dense dense = e.Weights();
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
  Dense dense = e->Weights();
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

TEST(AFactoredStepIsOneOfAllWeights) {
  testing::ForEachSimdLevel([] {
    ForEachShape([](int64_t num_classes, int64_t width, int64_t batch, int64_t num_targets) {
      Example<double> doubles(num_classes, width, batch, num_targets);
      ExpectStep(&doubles, 1e-10);
      Example<float> floats(num_classes, width, batch, num_targets);
      ExpectStep(&floats, 1e-5);
    });
  });
}

TEST(ThreadsDoNotChangeTheBitsOfAFactoredStep) {
  ForEachShape([](int64_t num_classes, int64_t width, int64_t batch, int64_t num_targets) {
    Example<float> e(num_classes, width, batch, num_targets), other = e;
    e.Step(0.01);
    other.Step(0.01, BackwardsFor);
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
