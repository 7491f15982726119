#include "custom_ops/cuda/class_gradient_body.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "custom_ops/core/class_scan.h"
#include "custom_ops/core/testing.h"
#include "custom_ops/cuda/class_scan_testing.h"
#include "custom_ops/cuda/host_blocks.h"

namespace largeout {
namespace cuda {
namespace {

struct GradientProblem : ScanProblem {
  explicit GradientProblem(const ScanProblem& scan)
      : ScanProblem(scan), log_partition(batch), weights(batch), label_weights(batch * width) {
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    for (float& value : weights) value = random() % 4 == 0 ? 0.0f : normal(random);
    for (float& value : label_weights) value = random() % 4 == 0 ? 0.0f : normal(random);
    std::vector<float> true_logits(ids.size());
    std::vector<int64_t> ranks(ids.size());
    ClassStatistics(matrix(), features(), labels(), SerialFor, log_partition.data(),
                    true_logits.data(), ranks.data());
  }

  ScanWeights scan_weights() const {
    return {log_partition.data(), weights.data(), label_weights.data()};
  }

  std::vector<float> log_partition, weights, label_weights;
};

struct Found {
  explicit Found(const ScanProblem& in)
      : d_features(in.data.size(), 7.0f),
        d_embeddings(in.embeddings.size(), 7.0f),
        d_bias(in.bias.size(), 7.0f) {}

  std::vector<float> d_features, d_embeddings, d_bias;
};

Found OnCpu(const GradientProblem& in) {
  Found found(in);
  ClassSoftmaxGradient(in.matrix(), in.features(), in.log_partition.data(), in.weights.data(),
                       in.labels(), in.label_weights.data(), SerialFor, found.d_features.data(),
                       found.d_embeddings.data(), found.d_bias.data());
  return found;
}

template <class Kind>
Found InBlocks(const GradientProblem& in) {
  using OfRows = typename Kind::OfRows;
  using OfClasses = typename Kind::OfClasses;
  Found found(in);
  std::vector<float> copy(in.data.size());
  const GradientBatch all{in.features(), in.labels(), in.scan_weights()};
  RunBlocks(2, kCopyThreads, 0, CopyFeaturesBody{all, in.num_classes, in.dim, copy.data()});
  const GradientBatch batch{{copy.data(), in.batch}, in.labels(), in.scan_weights()};

  const OfClasses of_classes{in.matrix(), batch,
                             PlanOfClasses<OfClasses>(in.batch, in.num_classes),
                             found.d_embeddings.data(), found.d_bias.data()};
  RunBlocks(2, OfClasses::Shape::kThreads, of_classes.kSharedBytes, of_classes);
  const ScanPlan plan = PlanOfRows<OfRows>(in.batch, in.num_classes);
  std::vector<float> parts(plan.shards * in.data.size(), 7.0f);
  const OfRows of_rows{in.matrix(), batch, plan, parts.data(), nullptr};
  RunBlocks(3, OfRows::Shape::kThreads, of_rows.kSharedBytes, of_rows);
  const int64_t size = static_cast<int64_t>(in.data.size());
  RunItems(size, AddShardsBody{parts.data(), plan.shards, size, found.d_features.data()});
  return found;
}

std::vector<Found> InAllBlocks(const GradientProblem& in) {
  std::vector<Found> all{InBlocks<WideGradient<1>>(in), InBlocks<LowGradient<1>>(in)};
  if (in.dim % 4 == 0) {
    all.push_back(InBlocks<WideGradient<4>>(in));
    all.push_back(InBlocks<LowGradient<4>>(in));
  }
  return all;
}

void ExpectNear(const std::vector<float>& found, const std::vector<float>& expected) {
  double scale = 1;
  for (const float value : expected) scale = std::max(scale, std::abs(double{value}));
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(found[i], expected[i], 1e-5 * scale);
  }
}

void ExpectSame(const GradientProblem& in) {
  const Found expected = OnCpu(in);
  for (const Found& found : InAllBlocks(in)) {
    ExpectNear(found.d_features, expected.d_features);
    ExpectNear(found.d_embeddings, expected.d_embeddings);
    ExpectNear(found.d_bias, expected.d_bias);
  }
}

TEST(GradientBodyGivesTheGradientOfTheCpu) {
  for (const ScanProblem& in : ScanProblems()) {
    if (in.batch > 0) ExpectSame(GradientProblem(in));
  }
  ExpectSame(GradientProblem(ScanProblem(9, 300, 150, 2)));
}

TEST(GradientBodyAddsTheWeightsOfLabelsThatRepeat) {
  ScanProblem in(20, 150, 6, 8);
  for (size_t i = 0; i < in.ids.size(); ++i) in.ids[i] = i % 3;
  ExpectSame(GradientProblem(in));
}

TEST(GradientBodyPassesOverRowsWithoutWeights) {
  GradientProblem in(ScanProblem(20, 150, 6, 2));
  in.weights[4] = in.label_weights[8] = in.label_weights[9] = 0.0f;
  in.data[4 * 6 + 1] = std::nanf("");
  in.log_partition[4] = std::nanf("");
  ExpectSame(in);
}

TEST(GradientBodyPassesOverLabelsOutsideTheClasses) {
  GradientProblem in(ScanProblem(20, 150, 6, 2));
  GradientProblem without = in;
  in.ids[7] = 150;
  in.ids[8] = -2;
  in.ids[9] = int64_t{1} << 62;
  without.ids[7] = without.ids[8] = without.ids[9] = -1;
  const Found expected = OnCpu(without);
  for (const Found& found : InAllBlocks(in)) {
    ExpectNear(found.d_features, expected.d_features);
    ExpectNear(found.d_embeddings, expected.d_embeddings);
  }
}

}  // namespace
}  // namespace cuda
}  // namespace largeout
