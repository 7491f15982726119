// The thread and block bodies of BuildKernelTree and UpdateKernelTree.
//
// A block computes a tile of pairs of numbers of a leaf, or a tile of projected numbers of some
// classes (kernel_tree_tile.h). Its sums are in the order of the classes or inputs, so an
// update gives the same bits as a build.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_KERNEL_TREE_SUMS_BODY_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_KERNEL_TREE_SUMS_BODY_H_

#include <cstdint>

#include "custom_ops/core/base/rounding.h"
#include "custom_ops/core/kernel_tree/kernel_tree.h"
#include "custom_ops/cuda/block_sums.h"
#include "custom_ops/cuda/float_bits.h"
#include "custom_ops/cuda/kernel_tree_tile.h"

namespace largeout {
namespace cuda {

// The parts of a tree to sum. flags: per node, not 0 if the node is to be summed; null if all
// nodes are.
struct TreeToSum {
  TreeShape shape;
  TreeRows rows;
  uint32_t* flags;  // [num_nodes], or null
  float* sums;

  // The node is to be summed; and the sums of the leaf have changed.
  static constexpr uint32_t kFlagged = 1, kChanged = 2;

  LARGEOUT_DEVICE bool IsFlagged(int64_t node) const {
    return flags == nullptr || flags[node] != 0;
  }
  LARGEOUT_DEVICE int64_t SizeOfLeaf(int64_t leaf) const {
    return shape.size(shape.leaf_size, leaf);
  }
  // Number k of an embedding and its bias; 0 after the last number.
  LARGEOUT_DEVICE float Input(int64_t id, int64_t k) const {
    const ClassMatrix& matrix = rows.matrix;
    if (k < matrix.dim) return matrix.embeddings[id * matrix.dim + k];
    return k < rows.input_dim() ? matrix.bias[id] : 0;
  }
  // Number k of a row that is summed.
  LARGEOUT_DEVICE float Number(int64_t id, int64_t k) const {
    if (rows.projection == nullptr) return Input(id, k);
    return k < rows.projected_dim ? rows.projected[id * rows.projected_dim + k] : 0;
  }
};

// Flags the leaf of each id.
struct FlagLeaves {
  TreeToSum tree;
  const int64_t* ids;

  LARGEOUT_DEVICE void operator()(int64_t i) const {
    if (ids[i] < 0 || ids[i] >= tree.shape.num_classes) return;
    RaiseTo(&tree.flags[ids[i] / tree.shape.leaf_size], TreeToSum::kFlagged);
  }
};

// Projects the rows of leaves, one tile of classes and outputs at a time.
struct ProjectRowsBody {
  TreeToSum tree;

  LARGEOUT_HOST_DEVICE int64_t class_tiles() const {
    return CeilDiv(tree.shape.size(tree.shape.leaf_size, 0), kTreeTile);
  }
  LARGEOUT_HOST_DEVICE int64_t tiles_of_leaf() const {
    return class_tiles() * CeilDiv(tree.rows.projected_dim, kTreeTile);
  }
  int64_t NumTiles() const { return tree.shape.num_leaves() * tiles_of_leaf(); }

  template <class Block>
  LARGEOUT_DEVICE void operator()(const Block& block, char* shared) const {
    const int64_t num_tiles = tree.shape.num_leaves() * tiles_of_leaf();
    for (int64_t i = block.index(); i < num_tiles; i += block.num_blocks()) {
      if (tree.IsFlagged(i / tiles_of_leaf())) Make(block, i, shared);
    }
  }

 private:
  template <class Block>
  LARGEOUT_DEVICE void Make(const Block& block, int64_t i, char* shared) const {
    const TreeRows& rows = tree.rows;
    const int64_t leaf = i / tiles_of_leaf(), tile = i % tiles_of_leaf();
    const int64_t begin = leaf * tree.shape.leaf_size, end = begin + tree.SizeOfLeaf(leaf);
    const int64_t first_class = begin + tile % class_tiles() * kTreeTile;
    const int64_t first_output = tile / class_tiles() * kTreeTile;
    const auto input = [&](int64_t k, int c) {
      return first_class + c < end ? tree.Input(first_class + c, k) : 0;
    };
    const auto weight = [&](int64_t k, int p) {
      const int64_t output = first_output + p;
      return output < rows.projected_dim ? rows.projection[output * rows.input_dim() + k] : 0;
    };
    const auto write = [&](int c, int p, float sum) {
      const int64_t id = first_class + c, output = first_output + p;
      if (id < end && output < rows.projected_dim) {
        rows.projected[id * rows.projected_dim + output] = sum;
      }
    };
    MakeTreeTile(block, rows.input_dim(), input, weight, shared, write);
  }
};

// Sums leaves, one tile of pairs at a time.
struct SumLeavesBody {
  TreeToSum tree;

  LARGEOUT_HOST_DEVICE int64_t tiles_of_leaf() const {
    return PlaceOfPair(CeilDiv(tree.rows.dim(), kTreeTile), 0);
  }
  int64_t NumTiles() const { return tree.shape.num_leaves() * tiles_of_leaf(); }

  template <class Block>
  LARGEOUT_DEVICE void operator()(const Block& block, char* shared) const {
    const int64_t num_tiles = tree.shape.num_leaves() * tiles_of_leaf();
    for (int64_t i = block.index(); i < num_tiles; i += block.num_blocks()) {
      const int64_t leaf = i / tiles_of_leaf();
      if (tree.IsFlagged(leaf)) Sum(block, leaf, i % tiles_of_leaf(), shared);
    }
  }

 private:
  template <class Block>
  LARGEOUT_DEVICE void Sum(const Block& block, int64_t leaf, int64_t tile, char* shared) const {
    int64_t row = 0;  // of tiles
    while (PlaceOfPair(row + 1, 0) <= tile) ++row;
    const int64_t first_i = row * kTreeTile;
    const int64_t first_j = (tile - PlaceOfPair(row, 0)) * kTreeTile;
    const int64_t first_class = leaf * tree.shape.leaf_size, dim = tree.rows.dim();
    const auto number_i = [&](int64_t c, int i) {
      return tree.Number(first_class + c, first_i + i);
    };
    const auto number_j = [&](int64_t c, int j) {
      return tree.Number(first_class + c, first_j + j);
    };
    MakeTreeTile(block, tree.SizeOfLeaf(leaf), number_i, number_j, shared,
                 [&](int i, int j, float sum) {
                   if (first_i + i < dim && first_j + j <= first_i + i) {
                     Write(leaf, PlaceOfPair(first_i + i, first_j + j), sum);
                   }
                 });
    if (tile > 0) return;
    const int64_t width = TreeWidth(dim), num_pairs = PlaceOfPair(dim, 0);
    block.ForEachThread([&](int thread) {
      for (int64_t k = num_pairs + thread; k < width; k += block.size()) Write(leaf, k, 0);
    });
  }

  LARGEOUT_DEVICE void Write(int64_t leaf, int64_t place, float sum) const {
    float* const to = tree.sums + leaf * TreeWidth(tree.rows.dim()) + place;
    if (tree.flags != nullptr && BitsOf(*to) != BitsOf(sum)) {
      RaiseTo(&tree.flags[leaf], TreeToSum::kChanged);
    }
    *to = sum;
  }
};

inline constexpr int kCountThreads = 256;  // a power of two

// Counts the leaves that have changed. Runs on one block.
struct CountChangedBody {
  TreeToSum tree;
  int64_t* num_changed;

  static constexpr int kSharedBytes = kCountThreads * sizeof(int64_t);

  template <class Block>
  LARGEOUT_DEVICE void operator()(const Block& block, char* shared) const {
    auto* const counts = reinterpret_cast<int64_t*>(shared);
    block.ForEachThread([&](int thread) {
      counts[thread] = 0;
      for (int64_t leaf = thread; leaf < tree.shape.num_leaves(); leaf += block.size()) {
        counts[thread] += tree.flags[leaf] == TreeToSum::kChanged;
      }
    });
    const int64_t total = SumOf(block, counts);
    block.ForEachThread([&](int thread) {
      if (thread == 0) *num_changed = total;
    });
  }
};

// Item i: a number of a node of the level becomes the sum over its children.
struct SumChildren {
  TreeToSum tree;
  int level;

  LARGEOUT_DEVICE void operator()(int64_t i) const {
    const TreeShape& shape = tree.shape;
    const int64_t width = TreeWidth(tree.rows.dim());
    const int64_t node = i / width, place = i % width;
    const int64_t child = shape.first[level - 1] + node * kTreeChildren;
    const int num_children = shape.num_children(level, node);
    bool is_flagged = false;
    for (int c = 0; c < num_children; ++c) is_flagged |= tree.IsFlagged(child + c);
    if (!is_flagged) return;
    if (tree.flags != nullptr && place == 0) {
      tree.flags[shape.first[level] + node] = TreeToSum::kFlagged;
    }
    float sum = tree.sums[child * width + place];
    for (int c = 1; c < num_children; ++c) sum += tree.sums[(child + c) * width + place];
    tree.sums[(shape.first[level] + node) * width + place] = sum;
  }
};

}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_KERNEL_TREE_SUMS_BODY_H_
