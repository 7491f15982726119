#include "custom_ops/core/class_scan/unit_rows.h"

#include <cmath>
#include <random>
#include <vector>

#include "custom_ops/core/base/testing.h"
#include "custom_ops/core/class_scan/class_scan.h"

namespace largeout {
namespace {

struct Results {
  std::vector<float> log_partition, true_logits, label_logits, scores;
  std::vector<int64_t> ranks, ids;
};

Results Scan(const ClassMatrix& matrix, const std::vector<float>& features, int64_t k) {
  const int64_t batch = features.size() / matrix.dim;
  std::vector<int64_t> labels(batch);
  for (int64_t b = 0; b < batch; ++b) labels[b] = b * 7 % matrix.num_classes;
  Results r = {std::vector<float>(batch),   std::vector<float>(batch),
               std::vector<float>(batch),   std::vector<float>(batch * k),
               std::vector<int64_t>(batch), std::vector<int64_t>(batch * k)};
  const Features examples = {features.data(), batch};
  ClassStatistics(matrix, examples, {labels.data(), 1}, SerialFor, r.log_partition.data(),
                  r.true_logits.data(), r.ranks.data());
  LabelLogits(matrix, examples, {labels.data(), 1}, SerialFor, r.label_logits.data());
  ClassTopK(matrix, examples, k, SerialFor, r.scores.data(), r.ids.data());
  return r;
}

TEST(PassesOverUnitRowsAreThoseOverCopiesOfLengthOne) {
  testing::ForEachSimdLevel([] {
    // More rows than a part has, in several shards; a batch without and one with a filter.
    for (int64_t batch : {3, 200}) {
      const int64_t num_classes = 1000, dim = 70;
      std::mt19937 random(5);
      std::normal_distribution<float> normal;
      std::vector<float> rows(num_classes * dim), bias(num_classes), features(batch * dim);
      for (std::vector<float>* values : {&rows, &bias, &features}) {
        for (float& value : *values) value = normal(random);
      }
      for (int64_t i = 0; i < num_classes * dim; ++i) {
        rows[i] = i / dim == 7 ? 0.0f : rows[i] * std::exp2(i / dim % 90 - 45.0f);
      }
      const ClassMatrix matrix = {rows.data(), bias.data(), num_classes, dim, nullptr, true};
      ScoredRows scored(matrix);
      const ClassMatrix copies = scored.Rows(0, num_classes);
      for (int64_t c = 0; c < num_classes; ++c) {
        const double square = SquaredNorm(copies.embeddings + c * dim, dim);
        const double of_row = SquaredNorm(&rows[c * dim], dim);
        EXPECT_NEAR(square, of_row < 1e-12 ? of_row * 1e12 : 1.0, 1e-5);
      }
      const Results found = Scan(matrix, features, 5), expected = Scan(copies, features, 5);
      EXPECT_EQ(found.log_partition, expected.log_partition);
      EXPECT_EQ(found.true_logits, expected.true_logits);
      EXPECT_EQ(found.label_logits, expected.label_logits);
      EXPECT_EQ(found.label_logits, expected.true_logits);
      EXPECT_EQ(found.ranks, expected.ranks);
      EXPECT_EQ(found.scores, expected.scores);
      EXPECT_EQ(found.ids, expected.ids);
    }
  });
}

}  // namespace
}  // namespace largeout
