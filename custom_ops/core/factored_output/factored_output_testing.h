// A factored output layer in the middle of its training, and a batch for it, for tests.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_FACTORED_OUTPUT_FACTORED_OUTPUT_TESTING_H_
#define LARGEOUT_CUSTOM_OPS_CORE_FACTORED_OUTPUT_FACTORED_OUTPUT_TESTING_H_

#include <cstdint>
#include <random>
#include <vector>

#include "custom_ops/core/factored_output/factored_output.h"

namespace largeout {
namespace testing {

// The weights W [num_classes, width] of a state, and values that loops compute from them.
struct FactoredDense {
  int64_t num_classes, width;
  std::vector<double> weights;

  double Logit(int64_t c, const double* features) const {
    double sum = 0;
    for (int64_t k = 0; k < width; ++k) sum += weights[c * width + k] * features[k];
    return sum;
  }
};

// A layer in the middle of its training, with some rows that lack folds, some examples, and the
// slopes of some loss.
template <class Number>
struct FactoredExample {
  FactoredExample(int64_t num_classes, int64_t width, int64_t batch, int64_t num_targets)
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
        log((kCapacity + 1) * (width + 1)),
        seen(num_classes),
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
    for (int64_t i = 0; i < kFolds; ++i) AddFold(i);
    for (uint32_t& one : seen) one = static_cast<uint32_t>(random() % (kFolds + 1));
    Invert();
    KeepSums();
  }

  std::vector<double> Random(int64_t size, double scale) {
    std::vector<double> numbers(size);
    for (double& number : numbers) number = scale * normal(random);
    return numbers;
  }

  // Fold 1 is kLarge, fold 2 kAll, the others are kSmall.
  void AddFold(int64_t i) {
    std::uniform_real_distribution<double> factor(-1, 1);
    double* fold = &log[(i + 1) * (width + 1)];
    for (int64_t k = 0; k <= width; ++k) fold[k] = factor(random);
    const auto place = static_cast<double>(random() % width);
    fold[0] = i == 1 ? -1 - place : i == 2 ? static_cast<double>(width) : place;
    log[0] = static_cast<double>(i + 1);
  }

  // V, with each row multiplied by the matrices G of the folds that it lacks.
  std::vector<double> Vectors() const {
    std::vector<double> all(vectors.begin(), vectors.end());
    for (int64_t c = 0; c < num_classes; ++c) {
      for (int64_t i = seen[c]; i < static_cast<int64_t>(log[0]); ++i) {
        const std::vector<double> before(&all[c * width], &all[c * width] + width);
        for (int64_t k = 0; k < width; ++k) {
          double& number = all[c * width + k] = 0;
          for (int64_t j = 0; j < width; ++j) number += before[j] * Fold(i, j, k);
        }
      }
    }
    return all;
  }

  // Element [j, k] of G of a fold.
  double Fold(int64_t i, int64_t j, int64_t k) const {
    const double* fold = &log[(i + 1) * (width + 1)];
    const auto number = static_cast<int64_t>(fold[0]);
    if (number == width) return (j == k) * fold[1];
    if (number >= 0 && j == number) return fold[k + 1];
    if (number < 0 && k == -1 - number) return fold[j + 1];
    return j == k;
  }

  // Gauss-Jordan elimination without pivoting: U is close to a multiple of I.
  void Invert() {
    std::vector<double> rest = mixing;
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

  FactoredDense Weights() const {
    FactoredDense dense{num_classes, width, std::vector<double>(num_classes * width)};
    const std::vector<double> rows = Vectors();
    for (int64_t c = 0; c < num_classes; ++c) {
      for (int64_t k = 0; k < width; ++k) {
        double sum = offset[k];
        for (int64_t i = 0; i < width; ++i) {
          sum += rows[c * width + i] * mixing[i * width + k];
        }
        dense.weights[c * width + k] = sum;
      }
    }
    return dense;
  }

  void KeepSums() {
    const std::vector<double> w = Weights().weights;
    for (int64_t c = 0; c < num_classes; ++c) {
      for (int64_t i = 0; i < width; ++i) {
        total[i] += w[c * width + i];
        for (int64_t k = 0; k < width; ++k) {
          gram[i * width + k] += w[c * width + i] * w[c * width + k];
        }
      }
    }
  }

  // The slopes by all logits [batch, num_classes]: 2 o gamma + sigma, plus those of the
  // targets.
  std::vector<double> ByLogits(const FactoredDense& dense) const {
    std::vector<double> slopes(batch * num_classes);
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
    return {vectors.data(), mixing.data(), inverse.data(),
            offset.data(),  total.data(),  gram.data(),
            num_classes,    width,         {log.data(), kCapacity, width},
            seen.data()};
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

  std::vector<double> Everything() const {
    std::vector<double> all(vectors.begin(), vectors.end());
    for (const std::vector<double>* part :
         {&mixing, &inverse, &offset, &total, &gram, &log, &by_features}) {
      all.insert(all.end(), part->begin(), part->end());
    }
    all.insert(all.begin(), seen.begin(), seen.end());
    return all;
  }

  static constexpr int64_t kCapacity = 8, kFolds = 4;
  std::mt19937_64 random{0};
  std::normal_distribution<double> normal;
  int64_t num_classes, width, batch, num_targets;
  std::vector<Number> vectors;
  std::vector<double> mixing, inverse, offset, total, gram, log;
  std::vector<uint32_t> seen;
  std::vector<double> features, by_q, by_s, by_a;
  std::vector<int64_t> ids;
  std::vector<double> q, s, a, gram_features, mixed_features, by_features;
};

}  // namespace testing
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_FACTORED_OUTPUT_FACTORED_OUTPUT_TESTING_H_
