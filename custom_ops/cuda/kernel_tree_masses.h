// The masses from which the draws of a query choose. A block computes them.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_KERNEL_TREE_MASSES_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_KERNEL_TREE_MASSES_H_

#include <cstdint>

#include "custom_ops/core/kernel_tree/kernel_tree.h"
#include "custom_ops/cuda/block_tools.h"

namespace largeout {
namespace cuda {

inline constexpr int kWalkThreads = 256;  // a power of two

// The logit of a class: the sum starts with the bias, in the order of the features.
LARGEOUT_DEVICE inline float OneLogit(const ClassMatrix& matrix, const float* feature,
                                      int64_t id) {
  const float* const row = matrix.embeddings + id * matrix.dim;
  float sum = matrix.bias != nullptr ? matrix.bias[id] : 0.0f;
  LARGEOUT_UNROLL_BY(16)
  for (int64_t k = 0; k < matrix.dim; ++k) sum = MultiplyAdd(feature[k], row[k], sum);
  return sum;
}

// The memory of the masses: part of a block's scratch, and shared memory.
struct MassMemory {
  double* masses;    // [most]
  double* ends;      // [most]
  float* phi;        // [width]
  double* products;  // [kTreeChildren, kWalkThreads], shared
};

template <class Block>
class TreeMasses {
 public:
  // SetChildren and SetClasses replace the masses. All threads see the new masses.
  LARGEOUT_DEVICE TreeMasses(const Block& block, const KernelTree& tree, const float* query,
                             const MassMemory& memory)
      : block_(block), tree_(tree), query_(query), memory_(memory) {
    MakeFeatures();
  }

  // Computes the masses of the children of a node. Returns whether all are finite.
  LARGEOUT_DEVICE bool SetChildren(int level, int64_t node) {
    const TreeShape& shape = tree_.shape;
    const int64_t child = node * kTreeChildren, span = shape.span(level - 1);
    size_ = shape.num_children(level, node);
    MultiplySums(tree_.sums + (shape.first[level - 1] + child) * tree_.width());
    block_.ForEachThread([&](int c) {
      if (c >= size_) return;
      memory_.masses[c] = KernelMass(tree_.alpha, memory_.products[c * kWalkThreads],
                                     shape.size(span, child + c));
    });
    return SumUp();
  }

  // Computes the masses of the classes of a leaf. Returns whether all are finite.
  LARGEOUT_DEVICE bool SetClasses(int64_t leaf) {
    const int64_t first = leaf * tree_.shape.leaf_size;
    size_ = tree_.shape.size(tree_.shape.leaf_size, leaf);
    block_.ForEachThread([&](int thread) {
      for (int64_t c = thread; c < size_; c += block_.size()) {
        memory_.masses[c] = LogitMass(tree_.alpha, OneLogit(tree_.rows, query_, first + c));
      }
    });
    return SumUp();
  }

  LARGEOUT_DEVICE double share(int64_t i) const { return memory_.masses[i] / total(); }

  // Returns the first mass whose end is above `uniform`, in [0, 1), times the total.
  LARGEOUT_DEVICE int64_t Pick(double uniform) const {
    const double place = uniform * total();
    int64_t first = 0, last = size_ - 1;
    while (first < last) {
      const int64_t middle = first + (last - first) / 2;
      if (memory_.ends[middle] <= place) {
        first = middle + 1;
      } else {
        last = middle;
      }
    }
    return first;
  }

 private:
  LARGEOUT_DEVICE double total() const { return memory_.ends[size_ - 1]; }

  LARGEOUT_DEVICE float Number(int64_t i) const { return i < tree_.rows.dim ? query_[i] : 1; }

  LARGEOUT_DEVICE void MakeFeatures() const {
    const int64_t dim = tree_.dim(), width = tree_.width();
    block_.ForEachThread([&](int thread) {
      for (int64_t i = 0; i < dim; ++i) {
        const float factor = 2 * Number(i);
        for (int64_t j = thread; j <= i; j += block_.size()) {
          memory_.phi[PlaceOfPair(i, j)] = (j < i ? factor : Number(i)) * Number(j);
        }
      }
      for (int64_t k = PlaceOfPair(dim, 0) + thread; k < width; k += block_.size()) {
        memory_.phi[k] = 0;
      }
    });
  }

  // products[c, 0] = <phi, row c of the sums>.
  LARGEOUT_DEVICE void MultiplySums(const float* sums) const {
    const int64_t width = tree_.width();
    block_.ForEachThread([&](int thread) {
      float products[kTreeChildren] = {};
      for (int64_t k = thread; k < width; k += block_.size()) {
        const float phi = memory_.phi[k];
        LARGEOUT_UNROLL
        for (int c = 0; c < kTreeChildren; ++c) {
          if (c < size_) products[c] = MultiplyAdd(phi, sums[c * width + k], products[c]);
        }
      }
      LARGEOUT_UNROLL
      for (int c = 0; c < kTreeChildren; ++c) {
        memory_.products[c * kWalkThreads + thread] = products[c];
      }
    });
    for (int half = kWalkThreads / 2; half > 0; half /= 2) {
      block_.ForEachThread([&](int thread) {
        if (thread >= half) return;
        for (int c = 0; c < kTreeChildren; ++c) {
          double* const at = memory_.products + c * kWalkThreads + thread;
          *at += at[half];
        }
      });
    }
  }

  // Adds the masses one after the other, because a node has few children or classes.
  LARGEOUT_DEVICE bool SumUp() const {
    block_.ForEachThread([&](int thread) {
      if (thread > 0) return;
      double end = 0;
      for (int64_t i = 0; i < size_; ++i) memory_.ends[i] = end += memory_.masses[i];
    });
    return total() - total() == 0;
  }

  const Block& block_;
  const KernelTree& tree_;
  const float* const query_;
  const MassMemory memory_;
  int64_t size_ = 0;
};

}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_KERNEL_TREE_MASSES_H_
