#include "custom_ops/core/class_scan/class_scan.h"

#include <cmath>
#include <random>
#include <thread>
#include <vector>

#include "custom_ops/core/base/testing.h"

namespace largeout {
namespace {

struct Example {
  Example(int64_t batch, int64_t num_classes, int64_t dim, int64_t width)
      : embeddings(num_classes * dim), bias(num_classes), features(batch * dim) {
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    for (float& value : embeddings) value = normal(random);
    for (float& value : bias) value = normal(random);
    for (float& value : features) value = normal(random);
    for (int64_t i = 0; i < batch * width; ++i) labels.push_back(random() % num_classes);
    this->batch = batch;
    this->width = width;
    matrix = {embeddings.data(), bias.data(), num_classes, dim};
  }

  double Logit(int64_t b, int64_t c) const {
    double sum = bias[c];
    for (int64_t k = 0; k < matrix.dim; ++k) {
      sum += double{features[b * matrix.dim + k]} * embeddings[c * matrix.dim + k];
    }
    return sum;
  }

  std::vector<float> embeddings, bias, features;
  std::vector<int64_t> labels;
  int64_t batch, width;
  ClassMatrix matrix;
};

// Runs parts of the units on `count` threads, like a thread pool.
ParallelFor Threads(int count) {
  return [count](int64_t total, int64_t, const std::function<void(int64_t, int64_t)>& work) {
    std::vector<std::thread> threads;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t begin = total * i / count, end = total * (i + 1) / count;
      if (begin < end) threads.emplace_back([=, &work] { work(begin, end); });
    }
    for (std::thread& thread : threads) thread.join();
  };
}

struct Found {
  std::vector<float> log_partition, true_logits, scores, d_features, d_embeddings, d_bias;
  std::vector<int64_t> ranks, ids;
};

Found Run(const Example& e, const ParallelFor& parallel, int64_t k) {
  Found found;
  found.log_partition.resize(e.batch);
  found.true_logits.resize(e.batch * e.width);
  found.ranks.resize(e.batch * e.width);
  ClassStatistics(e.matrix, {e.features.data(), e.batch}, {e.labels.data(), e.width}, parallel,
                  found.log_partition.data(), found.true_logits.data(), found.ranks.data());
  found.scores.resize(e.batch * k);
  found.ids.resize(e.batch * k);
  ClassTopK(e.matrix, {e.features.data(), e.batch}, k, parallel, found.scores.data(),
            found.ids.data());
  const std::vector<float> weights(e.batch, 0.5f), label_weights(e.batch * e.width, -0.25f);
  found.d_features.resize(e.features.size());
  found.d_embeddings.resize(e.embeddings.size());
  found.d_bias.resize(e.bias.size());
  ClassSoftmaxGradient(e.matrix, {e.features.data(), e.batch}, found.log_partition.data(),
                       weights.data(), {e.labels.data(), e.width}, label_weights.data(),
                       parallel, found.d_features.data(), found.d_embeddings.data(),
                       found.d_bias.data());
  return found;
}

TEST(LogPartitionIsTheLogOfTheSumOfExponentials) {
  testing::ForEachSimdLevel([] {
    const Example e(70, 401, 19, 1);
    const Found found = Run(e, SerialFor, 3);
    for (int64_t b = 0; b < e.batch; ++b) {
      double sum = 0;
      for (int64_t c = 0; c < 401; ++c) sum += std::exp(e.Logit(b, c));
      EXPECT_NEAR(found.log_partition[b], std::log(sum), 1e-5);
    }
  });
}

TEST(TopKHasTheRanksThatItsClassesHaveAsLabels) {
  testing::ForEachSimdLevel([] {
    Example e(5, 1000, 12, 6);
    e.labels.assign(5 * 6, -1);
    e.labels = Run(e, SerialFor, 6).ids;
    const Found found = Run(e, SerialFor, 6);
    for (int64_t i = 0; i < 5 * 6; ++i) EXPECT_EQ(found.ranks[i], i % 6);
  });
}

TEST(LabelLogitsAreThoseOfTheScan) {
  testing::ForEachSimdLevel([] {
    for (int64_t batch : {1, 3, 4, 5, 17, 70}) {
      for (int64_t dim : {7, 32, 50}) {
        Example e(batch, 301, dim, 3);
        for (size_t i = 0; i < e.labels.size(); i += 4) e.labels[i] = -1;
        for (auto numbers : {ProductNumbers::kFloat32, ProductNumbers::kBfloat16}) {
          std::vector<float> log_partition(batch), scanned(batch * 3), alone(batch * 3, NAN);
          std::vector<int64_t> ranks(batch * 3);
          const Features features = {e.features.data(), batch};
          const Labels labels = {e.labels.data(), 3};
          ClassStatistics(e.matrix, features, labels, SerialFor, log_partition.data(),
                          scanned.data(), ranks.data(), numbers);
          LabelLogits(e.matrix, features, labels, Threads(3), alone.data(), numbers);
          EXPECT_TRUE(alone == scanned);
        }
      }
    }
  });
}

// The largest batch whose lanes run along the width, and one more example. Some widths are
// multiples of a vector, others are not.
TEST(BatchesOfFewExamplesHaveTheLogitsOfTheirClasses) {
  testing::ForEachSimdLevel([] {
    for (int64_t batch : {1, 2, 3, 4, 5}) {
      for (int64_t dim : {31, 32, 39, 50, 96}) {
        Example e(batch, 301, dim, 301);
        const Found all = Run(e, SerialFor, 301);
        e.labels = all.ids;
        const Found found = Run(e, SerialFor, 1);
        for (int64_t i = 0; i < batch * 301; ++i) {
          EXPECT_NEAR(all.scores[i], e.Logit(i / 301, all.ids[i]), 1e-4);
          EXPECT_EQ(found.true_logits[i], all.scores[i]);
          EXPECT_EQ(found.ranks[i], i % 301);
        }
      }
    }
  });
}

TEST(ScansGiveTheSameBitsOnAnyNumberOfThreads) {
  testing::ForEachSimdLevel([] {
    const Example e(33, 2500, 20, 4);
    const Found one = Run(e, SerialFor, 9);
    for (int count : {2, 3, 7}) {
      const Found many = Run(e, Threads(count), 9);
      EXPECT_TRUE(one.log_partition == many.log_partition);
      EXPECT_TRUE(one.true_logits == many.true_logits);
      EXPECT_TRUE(one.ranks == many.ranks);
      EXPECT_TRUE(one.scores == many.scores);
      EXPECT_TRUE(one.ids == many.ids);
      EXPECT_TRUE(one.d_features == many.d_features);
      EXPECT_TRUE(one.d_embeddings == many.d_embeddings);
      EXPECT_TRUE(one.d_bias == many.d_bias);
    }
  });
}

TEST(GradientOfTheBiasIsTheProbabilityMinusTheLabels) {
  testing::ForEachSimdLevel([] {
    const Example e(70, 401, 19, 2);
    const Found found = Run(e, SerialFor, 1);
    std::vector<double> expected(401, 0.0);
    for (int64_t b = 0; b < e.batch; ++b) {
      for (int64_t c = 0; c < 401; ++c) {
        expected[c] += 0.5 * std::exp(e.Logit(b, c) - found.log_partition[b]);
      }
      for (int64_t l = 0; l < 2; ++l) expected[e.labels[2 * b + l]] -= 0.25;
    }
    for (int64_t c = 0; c < 401; ++c) EXPECT_NEAR(found.d_bias[c], expected[c], 1e-5);
  });
}

}  // namespace
}  // namespace largeout
