#include "custom_ops/core/rows/row_dots.h"

#include <algorithm>
#include <limits>
#include <thread>
#include <vector>

#include "custom_ops/core/base/testing.h"

namespace largeout {
namespace {

constexpr float kNoClass = std::numeric_limits<float>::lowest();

// Numbers between -1 and 1.
std::vector<float> Draw(int64_t size, uint64_t seed) {
  std::vector<float> values(size);
  for (float& value : values) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    value = static_cast<float>(static_cast<int64_t>(seed >> 40) - (1 << 23)) / (1 << 23);
  }
  return values;
}

// Two threads; each takes every other range of 3 units.
void ThreadedFor(int64_t total, int64_t, const std::function<void(int64_t, int64_t)>& work) {
  const auto run = [&](int64_t first) {
    for (int64_t i = first; i < total; i += 6) work(i, std::min(total, i + 3));
  };
  std::thread other(run, 3);
  run(0);
  other.join();
}

// A batch with own classes, some repeated and some missing, and shared classes.
struct Problem {
  explicit Problem(int64_t dim_in) : dim(dim_in) {
    for (int64_t i = 0; i < kBatch * kPerRow; ++i) ids.push_back(i * i % (kClasses + 1) - 1);
  }

  ClassMatrix matrix() const { return {embeddings.data(), bias.data(), kClasses, dim}; }
  OwnClasses own() const { return {ids.data(), kBatch, kPerRow}; }
  SharedClasses shared() const {
    return {shared_ids.data(), static_cast<int64_t>(shared_ids.size())};
  }
  RowDotsGradients gradients() const {
    return {features.data(), d_logits.data(), d_rows.data(), d_biases.data()};
  }

  static constexpr int64_t kBatch = 7, kPerRow = 11, kClasses = 30;
  int64_t dim;
  std::vector<float> embeddings = Draw(kClasses * dim, 1), bias = Draw(kClasses, 2);
  std::vector<float> features = Draw(kBatch * dim, 3), d_logits = Draw(kBatch * kPerRow, 4);
  std::vector<int64_t> ids, shared_ids = {29, 4, 4, 17};
  std::vector<float> d_rows = Draw(4 * dim, 5), d_biases = Draw(4, 6);
};

template <typename Body>
void ForAllWidths(const Body& body) {
  testing::ForEachSimdLevel([&] {
    for (int64_t dim : {1, 3, 8, 16, 37, 64, 128, 200, 300}) body(Problem(dim));
  });
}

TEST(RowDotsAreTheLogitsOfEachExamplesOwnClasses) {
  ForAllWidths([](const Problem& in) {
    std::vector<float> logits(in.ids.size());
    RowDots(in.matrix(), in.features.data(), in.own(), SerialFor, logits.data());
    for (size_t i = 0; i < in.ids.size(); ++i) {
      if (in.ids[i] < 0) {
        EXPECT_EQ(logits[i], kNoClass);
        continue;
      }
      double expected = in.bias[in.ids[i]];
      for (int64_t k = 0; k < in.dim; ++k) {
        expected += double{in.embeddings[in.ids[i] * in.dim + k]} *
                    in.features[i / Problem::kPerRow * in.dim + k];
      }
      EXPECT_NEAR(logits[i], expected, 2e-5);
    }
  });
}

TEST(GatheredRowsAreThoseOfTheSharedClasses) {
  const Problem in(5);
  std::vector<float> rows(4 * in.dim), biases(4);
  GatherRows(in.matrix(), in.shared(), SerialFor, rows.data(), biases.data());
  for (int64_t i = 0; i < 4; ++i) {
    EXPECT_EQ(biases[i], in.bias[in.shared_ids[i]]);
    for (int64_t k = 0; k < in.dim; ++k) {
      EXPECT_EQ(rows[i * in.dim + k], in.embeddings[in.shared_ids[i] * in.dim + k]);
    }
  }
}

TEST(FeatureGradientIsTheWeightedSumOfTheRows) {
  ForAllWidths([](const Problem& in) {
    std::vector<float> d_features(in.features.size());
    RowDotsFeatureGradient(in.matrix(), in.own(), in.d_logits.data(), SerialFor,
                           d_features.data());
    std::vector<double> expected(in.features.size());
    for (size_t i = 0; i < in.ids.size(); ++i) {
      for (int64_t k = 0; k < in.dim && in.ids[i] >= 0; ++k) {
        expected[i / Problem::kPerRow * in.dim + k] +=
            double{in.d_logits[i]} * in.embeddings[in.ids[i] * in.dim + k];
      }
    }
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(d_features[i], expected[i], 1e-5);
  });
}

TEST(RowGradientHasOneRowForEachDistinctClass) {
  ForAllWidths([](const Problem& in) {
    const MergedRows merged = MergeClasses(in.own(), in.shared(), SerialFor);
    std::vector<double> rows(Problem::kClasses * in.dim), biases(Problem::kClasses);
    std::vector<bool> met(Problem::kClasses);
    const auto add = [&](int64_t id, double weight, const float* row, double bias) {
      for (int64_t k = 0; k < in.dim; ++k) rows[id * in.dim + k] += weight * row[k];
      biases[id] += bias;
      met[id] = true;
    };
    for (size_t i = 0; i < in.ids.size(); ++i) {
      const float* feature = &in.features[i / Problem::kPerRow * in.dim];
      if (in.ids[i] >= 0) add(in.ids[i], in.d_logits[i], feature, in.d_logits[i]);
    }
    for (int64_t i = 0; i < 4; ++i) {
      add(in.shared_ids[i], 1, &in.d_rows[i * in.dim], in.d_biases[i]);
    }
    std::vector<float> d_rows(merged.size() * in.dim), d_biases(merged.size());
    RowDotsRowGradient(merged, in.gradients(), in.own(), in.dim, SerialFor, d_rows.data(),
                       d_biases.data());
    EXPECT_EQ(merged.size(), std::count(met.begin(), met.end(), true));
    for (int64_t s = 0; s < merged.size(); ++s) {
      EXPECT_TRUE(met[merged.ids[s]]);
      EXPECT_NEAR(d_biases[s], biases[merged.ids[s]], 1e-5);
      for (int64_t k = 0; k < in.dim; ++k) {
        EXPECT_NEAR(d_rows[s * in.dim + k], rows[merged.ids[s] * in.dim + k], 1e-5);
      }
    }
  });
}

TEST(RowGradientSumsAnyNumberOfTerms) {
  testing::ForEachSimdLevel([&] {
    constexpr int64_t kMany = 1000, kDim = 5;
    const std::vector<int64_t> ids(kMany, 2);
    const std::vector<float> features = Draw(kMany * kDim, 1), d_logits = Draw(kMany, 2);
    const OwnClasses own = {ids.data(), kMany, 1};
    const SharedClasses shared = {nullptr, 0};
    std::vector<float> d_rows(kDim);
    float d_bias = 0;
    RowDotsRowGradient(MergeClasses(own, shared, SerialFor),
                       {features.data(), d_logits.data(), nullptr, nullptr}, own, kDim,
                       SerialFor, d_rows.data(), &d_bias);
    std::vector<double> expected(kDim + 1);
    for (int64_t i = 0; i < kMany; ++i) {
      for (int64_t k = 0; k < kDim; ++k) {
        expected[k] += double{d_logits[i]} * features[i * kDim + k];
      }
      expected[kDim] += d_logits[i];
    }
    for (int64_t k = 0; k < kDim; ++k) EXPECT_NEAR(d_rows[k], expected[k], 1e-5);
    EXPECT_NEAR(d_bias, expected[kDim], 1e-5);
  });
}

std::vector<float> Everything(const Problem& in, const ParallelFor& parallel) {
  const int64_t features = in.features.size(), ids = in.ids.size();
  const MergedRows merged = MergeClasses(in.own(), in.shared(), parallel);
  std::vector<float> all(ids + features + merged.size() * (in.dim + 1));
  float* const d_features = all.data() + ids;
  float* const d_rows = d_features + features;
  RowDots(in.matrix(), in.features.data(), in.own(), parallel, all.data());
  RowDotsFeatureGradient(in.matrix(), in.own(), in.d_logits.data(), parallel, d_features);
  RowDotsRowGradient(merged, in.gradients(), in.own(), in.dim, parallel, d_rows,
                     d_rows + merged.size() * in.dim);
  return all;
}

TEST(RowDotsDoNotDependOnThreads) {
  ForAllWidths([](const Problem& in) {
    EXPECT_TRUE(Everything(in, SerialFor) == Everything(in, ThreadedFor));
  });
}

TEST(ExamplesWithoutClassesHaveNoGradient) {
  Problem in(16);
  in.ids.assign(in.ids.size(), -1);
  in.shared_ids.clear();
  EXPECT_EQ(MergeClasses(in.own(), in.shared(), SerialFor).size(), 0);
  std::vector<float> d_features(in.features.size(), 1.0f);
  RowDotsFeatureGradient(in.matrix(), in.own(), in.d_logits.data(), SerialFor,
                         d_features.data());
  for (float value : d_features) EXPECT_EQ(value, 0.0f);
}

}  // namespace
}  // namespace largeout
