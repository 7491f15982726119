#include "custom_ops/core/kernel_tree/kernel_tree.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "custom_ops/core/base/testing.h"
#include "custom_ops/core/kernel_tree/kernel_tree_testing.h"

namespace largeout {
namespace {

using Example = testing::KernelTreeExample;

TEST(KernelTreeShapesHaveEachClassInOneNodeOfALevel) {
  for (int64_t num_classes : {1, 2, 7, 16, 17, 64, 65, 300, 1025}) {
    for (int64_t leaf_size : {1, 3, 16, 5000}) {
      const TreeShape shape = MakeTreeShape(num_classes, leaf_size);
      EXPECT_EQ(shape.num_nodes(shape.num_levels - 1), 1);
      for (int level = 0; level < shape.num_levels; ++level) {
        int64_t classes = 0, children = 0;
        for (int64_t node = 0; node < shape.num_nodes(level); ++node) {
          EXPECT_GE(shape.size(shape.span(level), node), 1);
          classes += shape.size(shape.span(level), node);
          if (level > 0) children += shape.num_children(level, node);
        }
        EXPECT_EQ(classes, num_classes);
        if (level > 0) EXPECT_EQ(children, shape.num_nodes(level - 1));
      }
    }
  }
  EXPECT_EQ(MakeTreeShape((int64_t{1} << 31) - 1, 1).num_levels, kMostTreeLevels);
}

void ExpectSumsOfRows(Example* e) {
  const KernelTree tree = e->tree();
  const ClassMatrix& rows = tree.rows;
  const auto number = [&](int64_t c, int64_t i) -> double {
    return i < rows.dim ? rows.embeddings[c * rows.dim + i] : rows.bias[c];
  };
  for (int level = 0; level < e->shape.num_levels; ++level) {
    const int64_t span = e->shape.span(level);
    for (int64_t node = 0; node < e->shape.num_nodes(level); ++node) {
      const float* sums = &e->sums[(e->shape.first[level] + node) * tree.width()];
      for (int64_t i = 0; i < tree.dim(); ++i) {
        for (int64_t j = 0; j <= i; ++j) {
          double sum = 0;
          for (int64_t c = node * span; c < node * span + e->shape.size(span, node); ++c) {
            sum += number(c, i) * number(c, j);
          }
          EXPECT_NEAR(sums[PlaceOfPair(i, j)], sum, 1e-3);
        }
      }
      for (int64_t k = PlaceOfPair(tree.dim(), 0); k < tree.width(); ++k) {
        EXPECT_EQ(sums[k], 0.0f);
      }
    }
  }
}

TEST(KernelTreeNodesAreSumsOfTheirClasses) {
  testing::ForEachSimdLevel([] {
    for (int64_t dim : {1, 5, 16, 31}) {
      for (bool has_bias : {false, true}) {
        Example e(150, dim, 1, 8, has_bias);
        e.Build();
        ExpectSumsOfRows(&e);
      }
    }
  });
}

TEST(KernelTreeOfProjectedRowsHasTheirSums) {
  testing::ForEachSimdLevel([] {
    for (bool has_bias : {false, true}) {
      Example e(70, 21, 1, 8, has_bias, 5);
      e.Build();
      ExpectSumsOfRows(&e);
      for (int64_t c = 0; c < 70; ++c) {
        for (int64_t i = 0; i < 5; ++i) {
          const float* to = &e.projection[i * (21 + has_bias)];
          double sum = has_bias ? e.bias[c] * to[21] : 0;
          for (int64_t k = 0; k < 21; ++k) sum += double{e.embeddings[c * 21 + k]} * to[k];
          EXPECT_NEAR(e.projected[c * 5 + i], sum, 1e-4);
        }
      }
    }
  });
}

TEST(KernelTreeAfterUpdatesEqualsARebuiltTree) {
  testing::ForEachSimdLevel([] {
    for (int64_t projected_dim : {0, 6}) {
      Example e(333, 12, 1, 4, true, projected_dim);
      e.Build();
      for (int step = 0; step < 30; ++step) {
        std::vector<int64_t> ids;
        for (int i = 0; i < 7; ++i) {
          const int64_t id = e.random() % 333;
          ids.insert(ids.end(), 1 + i % 2, id);
          ids.push_back(-1);
          for (int64_t k = 0; k < 12; ++k) e.embeddings[id * 12 + k] += 0.1f * (e.random() % 7);
          e.bias[id] -= 1;
        }
        EXPECT_GE(e.Update(ids), 1);
        EXPECT_EQ(e.Update(ids), 0);
      }
      const std::vector<float> updated = e.sums;
      std::fill(e.sums.begin(), e.sums.end(), NAN);
      e.Build(testing::BackwardsFor);
      EXPECT_TRUE(updated == e.sums);
    }
  });
}

// Chi-square converted to a standard normal number: how far the counts are from their
// expectations.
double Deviation(const std::vector<int64_t>& counts, const std::vector<double>& q) {
  int64_t total = 0;
  for (int64_t count : counts) total += count;
  double chi_square = 0, variance = 0;
  for (size_t c = 0; c < counts.size(); ++c) {
    const double mean = total * q[c];
    chi_square += (counts[c] - mean) * (counts[c] - mean) / mean;
    variance += 1 / mean;
  }
  const double freedom = counts.size() - 1.0;
  return (chi_square - freedom) / std::sqrt(2 * freedom + variance);
}

TEST(KernelTreeDrawsFollowTheKernelAndReturnItsLogarithm) {
  testing::ForEachSimdLevel([] {
    for (int64_t projected_dim : {0, 3}) {
      Example e(90, 7, 3, 5, true, projected_dim);
      e.Build();
      const Example::Drawn drawn = e.Sample(60000, false, {0, -1, 89, 44, 44, 13});
      EXPECT_EQ(drawn.unfit, -1);
      for (int64_t query = 0; query < 3; ++query) {
        const std::vector<double> q = e.Probabilities(query);
        std::vector<int64_t> counts(90);
        for (int64_t i = query * 60000; i < (query + 1) * 60000; ++i) {
          ++counts[drawn.ids[i]];
          EXPECT_NEAR(drawn.log_q[i], std::log(q[drawn.ids[i]]), 1e-4);
        }
        EXPECT_LE(std::abs(Deviation(counts, q)), 5);
      }
      EXPECT_NEAR(drawn.label_log_q[0], std::log(e.Probabilities(0)[0]), 1e-4);
      EXPECT_EQ(drawn.label_log_q[1], 0.0f);
      EXPECT_NEAR(drawn.label_log_q[2], std::log(e.Probabilities(1)[89]), 1e-4);
      EXPECT_NEAR(drawn.label_log_q[3], std::log(e.Probabilities(1)[44]), 1e-4);
      EXPECT_NEAR(drawn.label_log_q[4], std::log(e.Probabilities(2)[44]), 1e-4);
      EXPECT_NEAR(drawn.label_log_q[5], std::log(e.Probabilities(2)[13]), 1e-4);
    }
  });
}

TEST(KernelTreeDrawsAreIndependentOfThreadsAndOfOtherQueries) {
  testing::ForEachSimdLevel([] {
    Example e(700, 40, 130, 9);  // wider than the block that is multiplied at once
    e.Build();
    const Example::Drawn all = e.Sample(21, false, std::vector<int64_t>(130, 5));
    const Example::Drawn backwards =
        e.Sample(21, false, std::vector<int64_t>(130, 5), {1, 2}, testing::BackwardsFor);
    EXPECT_TRUE(all.ids == backwards.ids);
    EXPECT_TRUE(all.log_q == backwards.log_q);
    EXPECT_TRUE(all.label_log_q == backwards.label_log_q);
    e.batch = 1;  // only the first draws of the first query
    const Example::Drawn one = e.Sample(21, false, {5});
    EXPECT_TRUE(std::equal(one.ids.begin(), one.ids.end(), all.ids.begin()));
    EXPECT_TRUE(std::equal(one.log_q.begin(), one.log_q.end(), all.log_q.begin()));
    EXPECT_EQ(one.label_log_q[0], all.label_log_q[0]);
    EXPECT_FALSE(e.Sample(21, false, {5}, {1, 3}).ids == one.ids);
  });
}

TEST(KernelTreeResultsDoNotDependOnHowBatchesAreDivided) {
  Example e(50, 3, 2500, 4);
  e.Build();
  std::vector<int64_t> labels(2500);
  for (int64_t i = 0; i < 2500; ++i) labels[i] = i % 50;
  const Example::Drawn drawn = e.Sample(2, false, labels);
  for (int64_t query : {0, 1023, 1024, 2048, 2499}) {
    const std::vector<double> q = e.Probabilities(query);
    EXPECT_NEAR(drawn.label_log_q[query], std::log(q[query % 50]), 1e-4);
    EXPECT_NEAR(drawn.log_q[query * 2 + 1], std::log(q[drawn.ids[query * 2 + 1]]), 1e-4);
  }
}

TEST(KernelTreePoolsDrawEquallyForAllExamples) {
  for (int64_t num_sampled : {1, 3, 10, 64}) {
    const int64_t batch = 10;
    std::vector<int64_t> counts(batch);
    for (int64_t offset = 0; offset < batch; ++offset) {
      const TreeDraws draws = {batch, num_sampled, true, offset};
      EXPECT_EQ(draws.begin(0), 0);
      EXPECT_EQ(draws.begin(batch), num_sampled);
      for (int64_t row = 0; row < batch; ++row) {
        const int64_t count = draws.begin(row + 1) - draws.begin(row);
        EXPECT_GE(count, num_sampled / batch);
        EXPECT_LE(count, CeilDiv(num_sampled, batch));
        counts[row] += count;
        for (int64_t i = 0; i < count; ++i) EXPECT_EQ(draws.row(draws.begin(row) + i), row);
      }
    }
    for (int64_t count : counts) EXPECT_EQ(count, num_sampled);
  }
}

TEST(KernelTreePoolsFollowTheMixtureOfTheExamples) {
  Example e(40, 6, 3, 4);
  e.Build();
  std::vector<double> q(40);
  for (int64_t query = 0; query < 3; ++query) {
    for (int64_t c = 0; c < 40; ++c) q[c] += e.Probabilities(query)[c] / 3;
  }
  std::vector<int64_t> counts(40);
  for (int64_t id : e.Sample(60000, true).ids) ++counts[id];
  EXPECT_LE(std::abs(Deviation(counts, q)), 5);
}

TEST(KernelTreeDrawsUniformlyForAQueryOfZeros) {
  Example e(77, 5, 1, 8, false);
  std::fill(e.features.begin(), e.features.end(), 0.0f);
  e.Build();
  std::vector<int64_t> counts(77);
  const Example::Drawn drawn = e.Sample(50000);
  for (int64_t id : drawn.ids) ++counts[id];
  for (float log_q : drawn.log_q) EXPECT_NEAR(log_q, -std::log(77.0), 1e-5);
  EXPECT_LE(std::abs(Deviation(counts, std::vector<double>(77, 1.0 / 77))), 5);
}

TEST(KernelTreeOfOneClassDrawsIt) {
  Example e(1, 4, 2, 16);
  e.Build();
  const Example::Drawn drawn = e.Sample(5, false, {0, 0});
  for (int64_t id : drawn.ids) EXPECT_EQ(id, 0);
  for (float log_q : drawn.log_q) EXPECT_EQ(log_q, 0.0f);
  EXPECT_EQ(drawn.label_log_q[1], 0.0f);
}

TEST(KernelTreeFindsRowsThatItCannotSum) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (float bad : {kInfinity, -kInfinity, NAN, 1e19f}) {
    for (int64_t projected_dim : {0, 5}) {
      Example e(60, 20, 1, 8, true, projected_dim);
      EXPECT_EQ(FindUnfitClass(e.shape, e.rows(), {}, SerialFor), -1);
      e.embeddings[41 * 20 + 19] = bad;
      e.bias[55] = bad;
      EXPECT_EQ(FindUnfitClass(e.shape, e.rows(), {}, testing::BackwardsFor), 41);
      EXPECT_EQ(e.FindUnfit({-1, 3, 50, 3}), projected_dim > 0 ? -1 : 55);
      EXPECT_EQ(e.FindUnfit({3, 55}), 55);
      EXPECT_EQ(e.FindUnfit({-1, 32}), -1);
    }
  }
  Example e(60, 20, 1, 8, true, 5);
  e.projection[3] = NAN;
  EXPECT_EQ(FindUnfitClass(e.shape, e.rows(), {}, SerialFor), 0);
}

TEST(KernelTreeReportsTheQueryWhoseMassesAreNotFinite) {
  for (float bad : {std::numeric_limits<float>::infinity(), NAN, 1e30f}) {
    Example e(61, 20, 40, 8);
    e.Build();
    e.features[17 * 20] = bad;
    e.features[30 * 20] = bad;
    EXPECT_EQ(e.Sample(9, false, std::vector<int64_t>(40, 60)).unfit, 17);
  }
  Example half(61, 20, 40, 8);  // labels get log_q where the masses are finite again
  half.Build();
  const int64_t width = half.tree().width();
  for (int64_t node = half.shape.first[1]; node < half.shape.num_nodes(); ++node) {
    std::fill_n(&half.sums[node * width], width, NAN);
  }
  EXPECT_EQ(half.Sample(9, false, std::vector<int64_t>(40, 60)).unfit, 0);
  Example damaged(61, 20, 40, 8);
  damaged.Build();
  for (float& sum : damaged.sums) sum = -sum;  // clamped: any draws are allowed
  for (int64_t id : damaged.Sample(9).ids) EXPECT_TRUE(0 <= id && id < 61);
  damaged.sums.assign(damaged.sums.size(), NAN);
  EXPECT_EQ(damaged.Sample(9).unfit, 0);
}

}  // namespace
}  // namespace largeout
