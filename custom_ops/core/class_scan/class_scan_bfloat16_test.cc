#include "custom_ops/core/class_scan/class_scan_bfloat16.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <thread>
#include <vector>

#include "custom_ops/core/base/testing.h"
#include "custom_ops/core/class_scan/class_scan.h"

namespace largeout {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

float Rounded(float x) {
  const uint32_t bits = uint32_t{RoundToBfloat16(x)} << 16;
  float result;
  std::memcpy(&result, &bits, sizeof(result));
  return result;
}

struct Example {
  Example(int64_t batch, int64_t num_classes, int64_t dim, int64_t width, float scale = 1.0f)
      : batch(batch), width(width), embeddings(num_classes * dim), bias(num_classes) {
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    for (float& value : embeddings) value = scale * normal(random);
    for (float& value : bias) value = normal(random);
    features.resize(batch * dim);
    for (float& value : features) value = normal(random);
    for (int64_t i = 0; i < batch * width; ++i) labels.push_back(random() % num_classes);
    matrix = {embeddings.data(), bias.data(), num_classes, dim};
  }

  double Logit(int64_t b, int64_t c) const {
    double sum = bias[c];
    for (int64_t k = 0; k < matrix.dim; ++k) {
      sum += double{Rounded(features[b * matrix.dim + k])} *
             Rounded(embeddings[c * matrix.dim + k]);
    }
    return sum;
  }

  int64_t batch, width;
  std::vector<float> embeddings, bias, features;
  std::vector<int64_t> labels;
  ClassMatrix matrix;
};

struct Found {
  std::vector<float> log_partition, true_logits, d_features, d_embeddings, d_bias;
  std::vector<int64_t> ranks;
};

Found Run(const Example& e, ProductNumbers numbers, const ParallelFor& parallel = SerialFor) {
  Found found;
  const Features features = {e.features.data(), e.batch};
  const Labels labels = {e.labels.data(), e.width};
  found.log_partition.resize(e.batch);
  found.true_logits.resize(e.batch * e.width);
  found.ranks.resize(e.batch * e.width);
  ClassStatistics(e.matrix, features, labels, parallel, found.log_partition.data(),
                  found.true_logits.data(), found.ranks.data(), numbers);
  const std::vector<float> weights(e.batch, 0.5f), label_weights(e.batch * e.width, -0.25f);
  found.d_features.resize(e.features.size());
  found.d_embeddings.resize(e.embeddings.size());
  found.d_bias.resize(e.bias.size());
  ClassSoftmaxGradient(e.matrix, features, found.log_partition.data(), weights.data(), labels,
                       label_weights.data(), parallel, found.d_features.data(),
                       found.d_embeddings.data(), found.d_bias.data(), numbers);
  return found;
}

TEST(Bfloat16RoundsToNearestTiesToEven) {
  EXPECT_EQ(Rounded(1.0f), 1.0f);
  EXPECT_EQ(Rounded(1.0f + 0x1p-8f), 1.0f);
  EXPECT_EQ(Rounded(1.0f + 0x1.8p-7f), 1.0f + 0x1p-6f);
  EXPECT_EQ(Rounded(1.0f + 0x1.01p-8f), 1.0f + 0x1p-7f);
  EXPECT_EQ(Rounded(-3.0f - 0x1p-8f), -3.0f);
  EXPECT_TRUE(std::signbit(Rounded(-0.0f)));
  EXPECT_EQ(Rounded(std::numeric_limits<float>::max()), kInf);
  EXPECT_EQ(Rounded(-kInf), -kInf);
  EXPECT_TRUE(std::isnan(Rounded(kNaN)) && std::isnan(Rounded(-kNaN)));
}

TEST(Bfloat16LogitsAreThoseOfRoundedNumbers) {
  testing::ForEachProductLevel([] {
    const int64_t shapes[][3] = {
        {1, 1, 1}, {1, 97, 33}, {3, 200, 64}, {65, 401, 19}, {130, 96, 300}};
    for (const auto& shape : shapes) {
      const Example e(shape[0], shape[1], shape[2], 2);
      const Found found = Run(e, ProductNumbers::kBfloat16);
      for (int64_t b = 0; b < e.batch; ++b) {
        double sum = 0;
        for (int64_t c = 0; c < e.matrix.num_classes; ++c) sum += std::exp(e.Logit(b, c));
        EXPECT_NEAR(found.log_partition[b], std::log(sum), 2e-5);
        for (int64_t l = 0; l < 2; ++l) {
          EXPECT_NEAR(found.true_logits[2 * b + l], e.Logit(b, e.labels[2 * b + l]), 5e-5);
        }
      }
    }
  });
}

TEST(Bfloat16LabelLogitsHaveTheBitsOfTheScan) {
  testing::ForEachProductLevel([] {
    Example e(5, 301, 50, 301);
    for (int64_t i = 0; i < 5 * 301; ++i) e.labels[i] = i % 301;
    const Found found = Run(e, ProductNumbers::kBfloat16);
    for (int64_t b = 0; b < 5; ++b) {
      std::vector<bool> met(301, false);
      for (int64_t l = 0; l < 301; ++l) met[found.ranks[b * 301 + l]] = true;
      for (int64_t rank = 0; rank < 301; ++rank) EXPECT_TRUE(met[rank]);
    }
  });
}

TEST(Bfloat16GradientIsCloseToTheFloatGradient) {
  testing::ForEachProductLevel([] {
    const int64_t shapes[][3] = {{1, 1, 1}, {3, 200, 64}, {65, 401, 19}, {600, 203, 48}};
    for (const auto& shape : shapes) {
      const Example e(shape[0], shape[1], shape[2], 2, 0.2f);
      const Found exact = Run(e, ProductNumbers::kFloat32);
      const Found found = Run(e, ProductNumbers::kBfloat16);
      // Rounding errors: p has its own 2^-9 and the change of the logits, and the other factor
      // is rounded too.
      const double bound = 0.04;
      for (size_t i = 0; i < found.d_bias.size(); ++i) {
        EXPECT_NEAR(found.d_bias[i], exact.d_bias[i], bound * e.batch * 0.5);
      }
      double error = 0, size = 0;
      for (size_t i = 0; i < found.d_embeddings.size(); ++i) {
        error += std::pow(found.d_embeddings[i] - exact.d_embeddings[i], 2);
        size += std::pow(exact.d_embeddings[i], 2);
      }
      for (size_t i = 0; i < found.d_features.size(); ++i) {
        error += std::pow(found.d_features[i] - exact.d_features[i], 2);
        size += std::pow(exact.d_features[i], 2);
      }
      EXPECT_TRUE(std::sqrt(error) <= bound * std::sqrt(size) + 1e-6);
    }
  });
}

TEST(Bfloat16PassesGiveTheSameBitsOnAnyNumberOfThreads) {
  testing::ForEachProductLevel([] {
    const Example e(70, 2500, 20, 3);
    const Found one = Run(e, ProductNumbers::kBfloat16);
    const Found many = Run(e, ProductNumbers::kBfloat16, testing::BackwardsFor);
    EXPECT_TRUE(one.log_partition == many.log_partition);
    EXPECT_TRUE(one.true_logits == many.true_logits);
    EXPECT_TRUE(one.ranks == many.ranks);
    EXPECT_TRUE(one.d_features == many.d_features);
    EXPECT_TRUE(one.d_embeddings == many.d_embeddings);
    EXPECT_TRUE(one.d_bias == many.d_bias);
  });
}

TEST(NaNInOneExampleDoesNotChangeOtherBfloat16Logits) {
  testing::ForEachProductLevel([] {
    Example e(20, 300, 40, 1);
    const Found before = Run(e, ProductNumbers::kBfloat16);
    e.features[7 * 40] = kNaN;
    e.features[9 * 40] = kInf;
    const Found found = Run(e, ProductNumbers::kBfloat16);
    for (int64_t b = 0; b < 20; ++b) {
      if (b == 7 || b == 9) {
        EXPECT_TRUE(std::isnan(found.log_partition[b]));
      } else {
        EXPECT_EQ(found.log_partition[b], before.log_partition[b]);
      }
    }
    e.embeddings[5 * 40] = -kInf;
    e.features.assign(e.features.size(), 1.0f);
    for (float log_partition : Run(e, ProductNumbers::kBfloat16).log_partition) {
      EXPECT_TRUE(std::isfinite(log_partition));
    }
  });
}

}  // namespace
}  // namespace largeout
