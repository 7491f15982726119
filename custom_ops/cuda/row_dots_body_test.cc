#include "custom_ops/cuda/row_dots_body.h"

#include <cmath>
#include <random>
#include <vector>

#include "custom_ops/core/testing.h"
#include "custom_ops/cuda/host_blocks.h"

namespace largeout {
namespace cuda {
namespace {

struct Problem {
  Problem(int64_t batch, int64_t per_row, int64_t num_classes, int64_t dim)
      : batch(batch), per_row(per_row), num_classes(num_classes), dim(dim) {
    std::mt19937 random(5);
    std::normal_distribution<float> normal;
    for (auto* values : {&embeddings, &bias, &features, &d_logits}) {
      for (float& value : *values) value = normal(random);
    }
    for (int64_t& id : ids) id = static_cast<int64_t>(random() % (num_classes + 1)) - 1;
  }

  ClassMatrix matrix() const { return {embeddings.data(), bias.data(), num_classes, dim}; }
  OwnClasses own() const { return {ids.data(), batch, per_row}; }

  int64_t batch, per_row, num_classes, dim;
  std::vector<float> embeddings = std::vector<float>(num_classes * dim);
  std::vector<float> bias = std::vector<float>(num_classes);
  std::vector<float> features = std::vector<float>(batch * dim);
  std::vector<float> d_logits = std::vector<float>(batch * per_row);
  std::vector<int64_t> ids = std::vector<int64_t>(batch * per_row);
};

const Problem kProblems[] = {{0, 3, 5, 4},  {3, 0, 5, 4},    {1, 1, 1, 1},    {7, 11, 30, 3},
                             {5, 70, 9, 8}, {4, 33, 20, 37}, {3, 9, 40, 128}, {2, 40, 7, 300}};

std::vector<float> Dots(const Problem& in, bool by_fours) {
  std::vector<float> logits(in.ids.size());
  if (by_fours) {
    const RowDotsBody<true> body{in.matrix(), in.features.data(), in.own(), logits.data()};
    RunBlocks(2, kRowDotThreads, body.kSharedBytes, body);
  } else {
    const RowDotsBody<false> body{in.matrix(), in.features.data(), in.own(), logits.data()};
    RunBlocks(3, kRowDotThreads, body.kSharedBytes, body);
  }
  return logits;
}

std::vector<float> FeatureGradient(const Problem& in) {
  std::vector<float> d_features(in.features.size(), 9.0f);
  const FeatureGradientBody body{in.matrix(), in.own(), in.d_logits.data(), d_features.data(),
                                 GradientColumns(in.dim)};
  RunBlocks(2, kRowDotThreads, body.kSharedBytes, body);
  return d_features;
}

TEST(RowDotsBodyGivesTheLogitsOfTheCpu) {
  for (const Problem& in : kProblems) {
    std::vector<float> expected(in.ids.size());
    largeout::RowDots(in.matrix(), in.features.data(), in.own(), SerialFor, expected.data());
    for (const bool by_fours : {false, true}) {
      if (by_fours && in.dim % 4 != 0) continue;
      const std::vector<float> logits = Dots(in, by_fours);
      for (size_t i = 0; i < logits.size(); ++i) {
        EXPECT_NEAR(logits[i], expected[i], 2e-5 * (1 + std::abs(expected[i])));
      }
    }
  }
}

TEST(FeatureGradientBodyGivesTheGradientOfTheCpu) {
  for (const Problem& in : kProblems) {
    std::vector<float> expected(in.features.size());
    largeout::RowDotsFeatureGradient(in.matrix(), in.own(), in.d_logits.data(), SerialFor,
                                     expected.data());
    const std::vector<float> d_features = FeatureGradient(in);
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_NEAR(d_features[i], expected[i], 2e-5 * (1 + std::abs(expected[i])));
    }
  }
}

// Groups of threads take every so many classes, in order; their sums are added in order.
float OneFeatureGradient(const Problem& in, int64_t row, int64_t k) {
  const int groups = kRowDotThreads / GradientColumns(in.dim);
  float total = 0;
  for (int group = 0; group < groups; ++group) {
    float sum = 0;
    for (int64_t i = row * in.per_row + group; i < (row + 1) * in.per_row; i += groups) {
      if (in.ids[i] != -1) {
        sum = fmaf(in.d_logits[i], in.embeddings[in.ids[i] * in.dim + k], sum);
      }
    }
    total += sum;
  }
  return total;
}

TEST(FeatureGradientBodyAddsClassesInOrderAndNothingOfNoClass) {
  for (Problem in : {Problem(2, 600, 40, 8), Problem(4, 33, 20, 37), Problem(3, 23, 9, 200),
                     Problem(2, 40, 7, 300)}) {
    in.embeddings[0] = -0.0f;
    for (size_t i = 0; i < in.ids.size(); ++i) {
      if (in.ids[i] == -1) in.d_logits[i] = i % 2 == 0 ? std::nanf("") : INFINITY;
    }
    const std::vector<float> found = FeatureGradient(in);
    for (int64_t i = 0; i < in.batch * in.dim; ++i) {
      EXPECT_EQ(found[i], OneFeatureGradient(in, i / in.dim, i % in.dim));
    }
  }
}

TEST(GatherRowsBodyCopiesTheRowsOfSharedClasses) {
  for (const Problem& in : kProblems) {
    const SharedClasses shared{in.ids.data(), static_cast<int64_t>(in.ids.size())};
    std::vector<float> rows(shared.size * in.dim), biases(shared.size);
    const GatherRowsBody body{in.matrix(), shared, rows.data(), biases.data()};
    RunBlocks(3, kRowDotThreads, 0, body);
    for (int64_t i = 0; i < shared.size; ++i) {
      const int64_t id = shared.ids[i];
      if (id < 0) {
        EXPECT_TRUE(std::isnan(biases[i]));
      } else {
        EXPECT_EQ(biases[i], in.bias[id]);
      }
      for (int64_t k = 0; k < in.dim; ++k) {
        const float value = rows[i * in.dim + k];
        EXPECT_TRUE(id < 0 ? std::isnan(value) : value == in.embeddings[id * in.dim + k]);
      }
    }
  }
}

TEST(IdsOutsideTheClassesGiveNaNAndReadNothing) {
  for (const int64_t id :
       {int64_t{30}, int64_t{-2}, int64_t{1} << 45, int64_t{1} << 62, -(int64_t{1} << 62)}) {
    Problem in(7, 11, 30, 8);
    in.ids[13] = id;  // of row 1
    const std::vector<float> d_features = FeatureGradient(in);
    for (const bool by_fours : {false, true}) {
      const std::vector<float> logits = Dots(in, by_fours);
      for (size_t i = 0; i < logits.size(); ++i) EXPECT_EQ(std::isnan(logits[i]), i == 13);
    }
    for (int64_t i = 0; i < 7 * 8; ++i) EXPECT_EQ(std::isnan(d_features[i]), i / 8 == 1);

    std::vector<float> row(8, 9.0f), bias(1, 9.0f);
    const GatherRowsBody body{in.matrix(), SharedClasses{&id, 1}, row.data(), bias.data()};
    RunBlocks(1, kRowDotThreads, 0, body);
    EXPECT_TRUE(std::isnan(bias[0]));
    for (const float value : row) EXPECT_TRUE(std::isnan(value));
  }
}

}  // namespace
}  // namespace cuda
}  // namespace largeout
