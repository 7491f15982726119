// The layout of the sums of a kernel tree, and the formulas of its draws, for CPU and GPU.
//
// Each leaf has `leaf_size` classes with consecutive ids. kTreeChildren consecutive nodes of a
// level have a common parent in the next level, up to the root. Leaves, and the last node of
// each level, may be smaller. A node keeps Z = the sum over its classes c of w_c w_c', where
// w_c is the row of the class: its embedding, followed by its bias, if there is one. Z is
// symmetric. Only the numbers [i, j] with j <= i are stored, row by row, at i (i + 1) / 2 + j,
// followed by zeros up to `width`.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_KERNEL_TREE_KERNEL_TREE_SHAPE_H_
#define LARGEOUT_CUSTOM_OPS_CORE_KERNEL_TREE_KERNEL_TREE_SHAPE_H_

#include <cmath>
#include <cstdint>

#include "custom_ops/core/base/host_device.h"
#include "custom_ops/core/base/philox.h"
#include "custom_ops/core/base/rounding.h"

namespace largeout {

inline constexpr int kTreeChildren = 4;
inline constexpr int kMostTreeLevels = 17;  // for 2^31 classes in leaves of one class
// In floats, so that rows start at a cache line.
inline constexpr int64_t kTreeWidthMultiple = 16;

// Place [i, j] in a row of sums, for j <= i.
LARGEOUT_HOST_DEVICE constexpr int64_t PlaceOfPair(int64_t i, int64_t j) {
  return i * (i + 1) / 2 + j;
}

// The number of floats of a row of sums over rows of `dim` numbers, including the bias.
LARGEOUT_HOST_DEVICE constexpr int64_t TreeWidth(int64_t dim) {
  return RoundUp(dim * (dim + 1) / 2, kTreeWidthMultiple);
}

// The nodes of a tree. Level 0 are the leaves; the last level is the root. Node i of level l is
// row first[l] + i of the sums. Its children are nodes kTreeChildren i, ... of level l - 1,
// which are adjacent.
struct TreeShape {
  int64_t num_classes;
  int64_t leaf_size;
  int num_levels;
  int64_t first[kMostTreeLevels + 1];  // up to first[num_levels], the number of nodes

  LARGEOUT_HOST_DEVICE int64_t num_nodes() const { return first[num_levels]; }
  LARGEOUT_HOST_DEVICE int64_t num_nodes(int level) const {
    return first[level + 1] - first[level];
  }
  LARGEOUT_HOST_DEVICE int64_t num_leaves() const { return num_nodes(0); }

  // The number of classes below a node of the level, except for its last node.
  LARGEOUT_HOST_DEVICE int64_t span(int level) const {
    int64_t classes = leaf_size;
    for (int l = 0; l < level; ++l) classes *= kTreeChildren;
    return classes;
  }

  // The number of classes below a node of a level with this span.
  LARGEOUT_HOST_DEVICE int64_t size(int64_t span, int64_t node) const {
    const int64_t rest = num_classes - node * span;
    return rest < span ? rest : span;
  }

  // The number of children of a node of `level`, which must not be a leaf.
  LARGEOUT_HOST_DEVICE int num_children(int level, int64_t node) const {
    const int64_t rest = num_nodes(level - 1) - node * kTreeChildren;
    return static_cast<int>(rest < kTreeChildren ? rest : kTreeChildren);
  }
};

// The leaf size is reduced to num_classes if necessary. REQUIRES: 1 <= num_classes < 2^31,
// leaf_size >= 1.
LARGEOUT_HOST_DEVICE inline TreeShape MakeTreeShape(int64_t num_classes, int64_t leaf_size) {
  leaf_size = leaf_size < num_classes ? leaf_size : num_classes;
  TreeShape shape = {num_classes, leaf_size, 1, {0, CeilDiv(num_classes, leaf_size)}};
  while (shape.num_nodes(shape.num_levels - 1) > 1) {
    const int64_t nodes = CeilDiv(shape.num_nodes(shape.num_levels - 1), kTreeChildren);
    shape.first[shape.num_levels + 1] = shape.num_nodes() + nodes;
    ++shape.num_levels;
  }
  return shape;
}

// The kernel mass: the sum over the classes of a node of alpha <w_c, h>^2 + 1, given <phi(h),
// Z>. A product below 0, which rounding may cause, counts as 0. NaN stays NaN.
LARGEOUT_HOST_DEVICE inline double KernelMass(double alpha, double product, int64_t size) {
  return alpha * (product < 0 ? 0 : product) + static_cast<double>(size);
}

// The kernel mass of a class.
LARGEOUT_HOST_DEVICE inline double LogitMass(double alpha, double logit) {
  return alpha * logit * logit + 1;
}

// A number in [0, 1) of 53 bits, with which draw `draw` of a step chooses at `level`.
LARGEOUT_HOST_DEVICE inline double TreeUniform(PhiloxSeed seed, int64_t draw, int level) {
  constexpr int kPairs = (kMostTreeLevels + 1) / 2;  // the bits of a draw serve two levels
  const DrawBits bits = BitsOfDraw(seed, static_cast<uint64_t>(draw) * kPairs + level / 2);
  return static_cast<double>((level % 2 == 0 ? bits.first : bits.second) >> 11) * 0x1p-53;
}

// The log of a product of shares. Calls log rarely, and works if the product underflows.
struct LogOfShares {
  double share = 1;  // the factors that are not yet in `log_share`
  double log_share = 0;

  LARGEOUT_HOST_DEVICE void Take(double part) {
    // Times a share, which comes from floats, it is still a normal number.
    constexpr double kLeastShare = 1e-150;
    share *= part;
    if (share > kLeastShare) return;
    log_share += std::log(share);
    share = 1;
  }
  LARGEOUT_HOST_DEVICE double Log() const { return log_share + std::log(share); }
};

// How many draws each example makes. Own draws: num_sampled per example. Shared draws:
// num_sampled in total, divided as evenly as possible: each example makes num_sampled / batch
// draws, rounded up or down, and exactly that on average over `offset`, which is uniform in [0,
// batch).
struct TreeDraws {
  int64_t batch;
  int64_t num_sampled;
  bool shared;
  int64_t offset;

  LARGEOUT_HOST_DEVICE int64_t size() const {
    return shared ? num_sampled : batch * num_sampled;
  }
  // Example b makes draws begin(b), begin(b) + 1, ..., begin(b + 1) - 1.
  LARGEOUT_HOST_DEVICE int64_t begin(int64_t row) const {
    if (!shared) return row * num_sampled;
    return (row * num_sampled + batch - 1 - offset) / batch;
  }
  // The example of a draw.
  LARGEOUT_HOST_DEVICE int64_t row(int64_t draw) const {
    return shared ? (draw * batch + offset) / num_sampled : draw / num_sampled;
  }
};

// The draws of a step. REQUIRES: num_sampled >= 1, and batch >= 1 if they are shared.
LARGEOUT_HOST_DEVICE inline TreeDraws MakeTreeDraws(int64_t batch, int64_t num_sampled,
                                                    bool shared, PhiloxSeed seed) {
  constexpr uint64_t kOffsetDraw = ~uint64_t{0};
  const int64_t offset = shared ? ScaleBits(BitsOfDraw(seed, kOffsetDraw).first, batch) : 0;
  return {batch, num_sampled, shared, offset};
}

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_KERNEL_TREE_KERNEL_TREE_SHAPE_H_
