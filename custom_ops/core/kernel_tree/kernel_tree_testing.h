// A kernel tree over random rows, and a float64 reference implementation, for tests.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_KERNEL_TREE_KERNEL_TREE_TESTING_H_
#define LARGEOUT_CUSTOM_OPS_CORE_KERNEL_TREE_KERNEL_TREE_TESTING_H_

#include <cmath>
#include <random>
#include <vector>

#include "custom_ops/core/kernel_tree/kernel_tree.h"

namespace largeout {
namespace testing {

// Class c has row (embeddings, bias); with `projected_dim` > 0 the tree is over its projection.
struct KernelTreeExample {
  KernelTreeExample(int64_t num_classes, int64_t dim, int64_t batch, int64_t leaf_size,
                    bool has_bias = true, int64_t projected_dim = 0)
      : num_classes(num_classes),
        dim(dim),
        batch(batch),
        projected_dim(projected_dim),
        shape(MakeTreeShape(num_classes, leaf_size)),
        embeddings(Normal(num_classes * dim)),
        bias(has_bias ? Normal(num_classes) : std::vector<float>()),
        projection(Normal(projected_dim * (dim + has_bias))),
        projected(num_classes * projected_dim),
        features(Normal(batch * (projected_dim > 0 ? projected_dim : dim))),
        sums(shape.num_nodes() * TreeWidth(rows().dim()), NAN) {}

  std::vector<float> Normal(int64_t size) {
    std::normal_distribution<float> normal;
    std::vector<float> numbers(size);
    for (float& number : numbers) number = normal(random);
    return numbers;
  }

  TreeRows rows() {
    TreeRows rows;
    rows.matrix = {embeddings.data(), bias.empty() ? nullptr : bias.data(), num_classes, dim};
    if (projected_dim == 0) return rows;
    rows.projection = projection.data();
    rows.projected_dim = projected_dim;
    rows.projected = projected.data();
    return rows;
  }

  KernelTree tree() {
    const ClassMatrix of_leaves =
        projected_dim > 0 ? ClassMatrix{projected.data(), nullptr, num_classes, projected_dim}
                          : rows().matrix;
    return {shape, of_leaves, sums.data(), alpha};
  }

  void Build(const ParallelFor& parallel = SerialFor) {
    BuildKernelTree(shape, rows(), parallel, sums.data());
  }

  int64_t Update(const std::vector<int64_t>& ids) {
    const TreeClasses classes = {ids.data(), static_cast<int64_t>(ids.size())};
    return UpdateKernelTree(shape, rows(), classes, SerialFor, sums.data());
  }

  int64_t FindUnfit(const std::vector<int64_t>& ids) {
    const TreeClasses classes = {ids.data(), static_cast<int64_t>(ids.size())};
    return FindUnfitClass(shape, rows(), classes, SerialFor);
  }

  struct Drawn {
    std::vector<int64_t> ids;
    std::vector<float> log_q, label_log_q;
    int64_t unfit = -1;
  };

  Drawn Sample(int64_t num_sampled, bool shared = false,
               const std::vector<int64_t>& labels = {}, PhiloxSeed seed = {1, 2},
               const ParallelFor& parallel = SerialFor) {
    const TreeDraws draws = MakeTreeDraws(batch, num_sampled, shared, seed);
    Drawn drawn;
    drawn.ids.resize(draws.size(), -7);
    drawn.log_q.resize(draws.size());
    drawn.label_log_q.resize(labels.size());
    drawn.unfit = SampleKernelTree(
        tree(), {features.data(), batch},
        {labels.data(), static_cast<int64_t>(labels.size()) / batch}, draws, seed, parallel,
        {drawn.ids.data(), drawn.log_q.data(), drawn.label_log_q.data()});
    return drawn;
  }

  // q of all classes for a query.
  std::vector<double> Probabilities(int64_t query) {
    const ClassMatrix of_leaves = tree().rows;
    std::vector<double> q(num_classes);
    double sum = 0;
    for (int64_t c = 0; c < num_classes; ++c) {
      double logit = of_leaves.bias != nullptr ? of_leaves.bias[c] : 0;
      for (int64_t k = 0; k < of_leaves.dim; ++k) {
        logit += double{of_leaves.embeddings[c * of_leaves.dim + k]} *
                 features[query * of_leaves.dim + k];
      }
      sum += q[c] = alpha * logit * logit + 1;
    }
    for (double& one : q) one /= sum;
    return q;
  }

  int64_t num_classes, dim, batch, projected_dim;
  double alpha = 3;
  std::mt19937 random{1};
  TreeShape shape;
  std::vector<float> embeddings, bias, projection, projected, features, sums;
};

}  // namespace testing
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_KERNEL_TREE_KERNEL_TREE_TESTING_H_
