// Where the sums of a kernel tree stand, and the formulas of its draws, for the CPU and the
// GPU.
//
// The classes are dealt by id to leaves of `leaf_size` consecutive ones; kTreeChildren
// consecutive nodes of a level have a parent in the next, up to the root. Leaves, and the last
// node of each level, may be shorter. A node keeps Z = the sum over its classes c of w_c w_c',
// where w_c is the row of the class: its embedding, with the bias, if there is one, as one more
// number. Z is symmetric: kept are the numbers [i, j] with j <= i, row by row, at
// i (i + 1) / 2 + j, then zeros up to `width`.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_KERNEL_TREE_KERNEL_TREE_SHAPE_H_
#define LARGEOUT_CUSTOM_OPS_CORE_KERNEL_TREE_KERNEL_TREE_SHAPE_H_

#include <cmath>
#include <cstdint>

#include "custom_ops/core/base/host_device.h"
#include "custom_ops/core/base/philox.h"
#include "custom_ops/core/base/rounding.h"

namespace largeout {

inline constexpr int kTreeChildren = 4;
inline constexpr int kMostTreeLevels = 17;         // for 2^31 classes in leaves of one
inline constexpr int64_t kTreeWidthMultiple = 16;  // floats: rows begin at a cache line

// Place [i, j] in a row of sums, for j <= i.
LARGEOUT_HOST_DEVICE constexpr int64_t PlaceOfPair(int64_t i, int64_t j) {
  return i * (i + 1) / 2 + j;
}

// Floats of a row of sums over rows of `dim` numbers, bias included.
LARGEOUT_HOST_DEVICE constexpr int64_t TreeWidth(int64_t dim) {
  return RoundUp(dim * (dim + 1) / 2, kTreeWidthMultiple);
}

// The nodes of a tree. Level 0 are the leaves, the last level is the root alone. Node i of
// level l is row first[l] + i of the sums; its children are nodes kTreeChildren i, ... of level
// l - 1, next to each other.
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

  // Number of classes below a node of the level that is not the last.
  LARGEOUT_HOST_DEVICE int64_t span(int level) const {
    int64_t classes = leaf_size;
    for (int l = 0; l < level; ++l) classes *= kTreeChildren;
    return classes;
  }

  // Number of classes below a node whose level has this span.
  LARGEOUT_HOST_DEVICE int64_t size(int64_t span, int64_t node) const {
    const int64_t rest = num_classes - node * span;
    return rest < span ? rest : span;
  }

  // Number of children of a node of `level`, which is no leaf.
  LARGEOUT_HOST_DEVICE int num_children(int level, int64_t node) const {
    const int64_t rest = num_nodes(level - 1) - node * kTreeChildren;
    return static_cast<int>(rest < kTreeChildren ? rest : kTreeChildren);
  }
};

// A leaf is not larger than the tree. REQUIRES: 1 <= num_classes < 2^31, leaf_size >= 1.
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

// Sum over the classes of a node of alpha <w_c, h>^2 + 1, given <phi(h), Z>: the kernel mass.
// Rounding may have left a product below 0. NaN stays NaN.
LARGEOUT_HOST_DEVICE inline double KernelMass(double alpha, double product, int64_t size) {
  return alpha * (product < 0 ? 0 : product) + static_cast<double>(size);
}

// That of a class.
LARGEOUT_HOST_DEVICE inline double LogitMass(double alpha, double logit) {
  return alpha * logit * logit + 1;
}

// In [0, 1), of 53 bits: what draw `draw` of all draws of a step picks with at `level`.
LARGEOUT_HOST_DEVICE inline double TreeUniform(PhiloxSeed seed, int64_t draw, int level) {
  constexpr int kPairs = (kMostTreeLevels + 1) / 2;  // each draw of bits serves two levels
  const DrawBits bits = BitsOfDraw(seed, static_cast<uint64_t>(draw) * kPairs + level / 2);
  return static_cast<double>((level % 2 == 0 ? bits.first : bits.second) >> 11) * 0x1p-53;
}

// The log of a product of shares, with few logs, and where the product underflows.
struct LogOfShares {
  double share = 1;  // the product, as far as it is not in `log_share`
  double log_share = 0;

  LARGEOUT_HOST_DEVICE void Take(double part) {
    constexpr double kLeastShare = 1e-150;  // times a part, of masses of floats, is no denormal
    share *= part;
    if (share > kLeastShare) return;
    log_share += std::log(share);
    share = 1;
  }
  LARGEOUT_HOST_DEVICE double Log() const { return log_share + std::log(share); }
};

// How often the rows of a batch draw. Own draws: num_sampled for each row. Shared ones:
// num_sampled in all, as evenly as can be: for each row num_sampled / batch, rounded up or
// down, and exactly that in the mean over `offset`, which is uniform in [0, batch).
struct TreeDraws {
  int64_t batch;
  int64_t num_sampled;
  bool shared;
  int64_t offset;

  LARGEOUT_HOST_DEVICE int64_t size() const {
    return shared ? num_sampled : batch * num_sampled;
  }
  // Row b draws begin(b), begin(b) + 1, ..., begin(b + 1) - 1.
  LARGEOUT_HOST_DEVICE int64_t begin(int64_t row) const {
    if (!shared) return row * num_sampled;
    return (row * num_sampled + batch - 1 - offset) / batch;
  }
  // The row of a draw.
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
