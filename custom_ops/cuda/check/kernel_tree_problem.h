// Inputs for the checks of kernel trees, for the CPU and the GPU.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_CHECK_KERNEL_TREE_PROBLEM_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_CHECK_KERNEL_TREE_PROBLEM_H_

#include <cstdint>
#include <string>

#include "custom_ops/core/kernel_tree/kernel_tree.h"
#include "custom_ops/core/kernel_tree/kernel_tree_testing.h"
#include "custom_ops/cuda/check/check.h"

namespace largeout {
namespace cuda {
namespace check {

struct TreeSize {
  int64_t num_classes, dim, leaf_size;
  bool has_bias;
  int64_t projected_dim = 0;
};

// One class, one leaf, few classes per leaf, sizes that no tile divides, more than one tile of
// pairs, several tiles of classes and outputs, and sizes that are multiples of a tile.
inline constexpr TreeSize kTreeSizes[] = {
    {1, 4, 16, true},         {9, 3, 16, false},      {150, 5, 8, true},
    {150, 1, 1, true},        {333, 12, 4, true},     {700, 40, 9, true},
    {500, 32, 70, false},     {130, 101, 33, true},   {333, 12, 4, true, 6},
    {260, 21, 50, false, 40}, {200, 33, 32, true, 32}};
inline constexpr TreeSize kLargeTree = {1000000, 128, 128, true};

inline std::string Text(const TreeSize& size, const std::string& what = "") {
  return Sizes({{"classes", size.num_classes},
                {"dim", size.dim},
                {"leaf", size.leaf_size},
                {"projected", size.projected_dim}}) +
         " " + what;
}

// A tree and its rows, with copies on the GPU. The CPU and the GPU write separate arrays of
// sums.
struct TreeProblem {
  TreeProblem(const TreeSize& size, int64_t batch)
      : on_cpu(size.num_classes, size.dim, batch, size.leaf_size, size.has_bias,
               size.projected_dim),
        embeddings(on_cpu.embeddings),
        bias(on_cpu.bias),
        projection(on_cpu.projection),
        features(on_cpu.features),
        projected(static_cast<int64_t>(on_cpu.projected.size())),
        sums(static_cast<int64_t>(on_cpu.sums.size())) {}

  TreeRows rows() {
    TreeRows rows = on_cpu.rows();
    rows.matrix.embeddings = embeddings.data();
    if (rows.matrix.bias != nullptr) rows.matrix.bias = bias.data();
    if (rows.projection == nullptr) return rows;
    rows.projection = projection.data();
    rows.projected = projected.data();
    return rows;
  }

  KernelTree tree() {
    KernelTree tree = on_cpu.tree();
    const bool is_projected = on_cpu.projected_dim > 0;
    tree.rows.embeddings = is_projected ? projected.data() : embeddings.data();
    if (tree.rows.bias != nullptr) tree.rows.bias = bias.data();
    tree.sums = sums.data();
    return tree;
  }

  // Copies the CPU's sums to the GPU, so that both draw from the same numbers.
  void CopySums() {
    on_cpu.Build();
    sums.Set(on_cpu.sums);
    projected.Set(on_cpu.projected);
  }

  testing::KernelTreeExample on_cpu;
  DeviceArray<float> embeddings, bias, projection, features, projected, sums;
};

}  // namespace check
}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_CHECK_KERNEL_TREE_PROBLEM_H_
