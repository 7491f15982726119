#include "custom_ops/core/kernel_tree.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>
#include <vector>

#include "custom_ops/core/aligned_array.h"
#include "custom_ops/core/dense_product_simd.h"
#include "custom_ops/core/kernel_tree_simd.h"
#include "custom_ops/core/simd_level.h"

namespace largeout {
namespace {

constexpr int64_t kPairRows = 12;  // of Z that are summed at once: whole tiles of a product

// The rows of a leaf, as they are summed.
class LeafRows {
 public:
  LeafRows(const TreeShape& shape, const TreeRows& rows)
      : shape_(shape),
        rows_(rows),
        stride_(RoundUp(rows.dim(), kWidthMultiple)),
        summed_(shape.leaf_size * stride_),
        inputs_(rows.projection != nullptr ? shape.leaf_size * rows.input_dim() : 0),
        transposed_(rows.projection != nullptr ? rows.input_dim() * stride_ : 0, 0.0f) {
    for (size_t i = 0; i < transposed_.size(); ++i) {
      const int64_t to = i % stride_;
      if (to < rows.dim())
        transposed_[i] = rows.projection[to * rows.input_dim() + i / stride_];
    }
  }

  void Read(int64_t leaf) {
    begin_ = leaf * shape_.leaf_size;
    size_ = shape_.size(shape_.leaf_size, leaf);
    std::fill_n(summed_.get(), size_ * stride_, 0.0f);
    if (rows_.projection == nullptr) return Gather(summed_.get(), stride_);
    const int64_t depth = rows_.input_dim();
    Gather(inputs_.data(), depth);
    LARGEOUT_SIMD_DISPATCH(AddProduct, {size_, depth, stride_}, {inputs_.data(), depth, 1},
                           transposed_.data(), stride_, summed_.get(), stride_);
    for (int64_t c = 0; c < size_; ++c) {
      std::copy_n(data() + c * stride_, rows_.dim(),
                  rows_.projected + (begin_ + c) * rows_.dim());
    }
  }

  const float* data() const { return summed_.get(); }
  int64_t size() const { return size_; }
  int64_t stride() const { return stride_; }  // zeros follow each row

 private:
  // The embeddings and biases of the classes, one a `stride`.
  void Gather(float* to, int64_t stride) const {
    const ClassMatrix& matrix = rows_.matrix;
    for (int64_t c = 0; c < size_; ++c, to += stride) {
      std::copy_n(matrix.embeddings + (begin_ + c) * matrix.dim, matrix.dim, to);
      if (matrix.bias != nullptr) to[matrix.dim] = matrix.bias[begin_ + c];
    }
  }

  const TreeShape& shape_;
  const TreeRows& rows_;
  const int64_t stride_;
  AlignedFloats summed_;
  std::vector<float> inputs_;
  std::vector<float> transposed_;  // [input_dim, stride]
  int64_t begin_ = 0, size_ = 0;
};

// Makes sums of leaves. For one thread.
class LeafSums {
 public:
  LeafSums(const TreeShape& shape, const TreeRows& rows)
      : dim_(rows.dim()), rows_(shape, rows), block_(kPairRows * rows_.stride()) {}

  // sums: [TreeWidth(dim)].
  void Write(int64_t leaf, float* sums) {
    rows_.Read(leaf);
    const int64_t stride = rows_.stride();
    for (int64_t first = 0; first < dim_; first += kPairRows) {
      const int64_t last = std::min(first + kPairRows, dim_);
      const int64_t width = RoundUp(last, kWidthMultiple);
      std::fill_n(block_.get(), kPairRows * stride, 0.0f);
      LARGEOUT_SIMD_DISPATCH(AddProduct, {last - first, rows_.size(), width},
                             {rows_.data() + first, 1, stride}, rows_.data(), stride,
                             block_.get(), stride);
      for (int64_t i = first; i < last; ++i) {
        std::copy_n(block_.get() + (i - first) * stride, i + 1, sums + PlaceOfPair(i, 0));
      }
    }
    std::fill(sums + PlaceOfPair(dim_, 0), sums + TreeWidth(dim_), 0.0f);
  }

 private:
  const int64_t dim_;
  LeafRows rows_;
  AlignedFloats block_;
};

int64_t CyclesOfLeaf(const TreeShape& shape, const TreeRows& rows) {
  return shape.leaf_size * (TreeWidth(rows.dim()) + 2 * rows.matrix.dim) / 8;
}

// Nodes of `level` become the sums of their children.
void SumChildren(const TreeShape& shape, int level, const std::vector<int64_t>& nodes,
                 int64_t width, const ParallelFor& parallel, float* sums) {
  parallel(nodes.size(), kTreeChildren * width, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t child = shape.first[level - 1] + nodes[i] * kTreeChildren;
      const AdjacentRows children = {sums + child * width, shape.num_children(level, nodes[i]),
                                     width};
      LARGEOUT_SIMD_DISPATCH(SumRows, children, sums + (shape.first[level] + nodes[i]) * width);
    }
  });
}

// Sums the nodes above these leaves, level by level. nodes: rising.
void SumAbove(const TreeShape& shape, std::vector<int64_t> nodes, int64_t width,
              const ParallelFor& parallel, float* sums) {
  for (int level = 1; level < shape.num_levels; ++level) {
    for (int64_t& node : nodes) node /= kTreeChildren;
    nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
    SumChildren(shape, level, nodes, width, parallel, sums);
  }
}

std::vector<int64_t> FlaggedLeaves(const TreeShape& shape, const uint8_t* flags) {
  std::vector<int64_t> leaves;
  for (int64_t leaf = 0; leaf < shape.num_leaves(); ++leaf) {
    if (flags == nullptr || flags[leaf] != 0) leaves.push_back(leaf);
  }
  return leaves;
}

// Sums these leaves, and returns how many have other sums than before.
int64_t SumLeaves(const TreeShape& shape, const TreeRows& rows,
                  const std::vector<int64_t>& leaves, const ParallelFor& parallel,
                  float* sums) {
  const int64_t width = TreeWidth(rows.dim());
  std::atomic<int64_t> num_changed{0};
  parallel(leaves.size(), CyclesOfLeaf(shape, rows), [&](int64_t begin, int64_t end) {
    LeafSums leaf_sums(shape, rows);
    const AlignedFloats now(width);
    for (int64_t i = begin; i < end; ++i) {
      float* before = sums + leaves[i] * width;
      leaf_sums.Write(leaves[i], now.get());
      if (std::memcmp(before, now.get(), width * sizeof(float)) == 0) continue;
      std::copy_n(now.get(), width, before);
      ++num_changed;
    }
  });
  return num_changed;
}

// How much longer the projection can make a row: at most so many times its sum of squares.
double SquareOfProjection(const TreeRows& rows) {
  double sum = 0;
  const int64_t size = rows.projection != nullptr ? rows.projected_dim * rows.input_dim() : 0;
  for (int64_t i = 0; i < size; ++i) sum += double{rows.projection[i]} * rows.projection[i];
  return sum < 1 ? 1 : sum;  // NaN stays NaN
}

}  // namespace

double LargestSquare(int64_t num_classes) {
  return std::numeric_limits<float>::max() / 4.0 / static_cast<double>(num_classes);
}

int64_t FindUnfitClass(const TreeShape& shape, const TreeRows& rows, const uint8_t* flags,
                       const ParallelFor& parallel) {
  const std::vector<int64_t> leaves = FlaggedLeaves(shape, flags);
  const ClassMatrix& matrix = rows.matrix;
  const double limit = LargestSquare(shape.num_classes) / SquareOfProjection(rows);
  std::atomic<int64_t> first{shape.num_classes};
  const auto is_unfit = [&](int64_t c) {
    float square = 0;
    LARGEOUT_SIMD_DISPATCH(SumSquares, matrix.embeddings + c * matrix.dim, matrix.dim, &square);
    const double bias = matrix.bias != nullptr ? matrix.bias[c] : 0;
    return !(square + bias * bias <= limit);
  };
  parallel(leaves.size(), shape.leaf_size * matrix.dim / 4, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t from = leaves[i] * shape.leaf_size;
      const int64_t to = from + shape.size(shape.leaf_size, leaves[i]);
      for (int64_t c = from; c < to && c < first; ++c) {
        if (!is_unfit(c)) continue;
        int64_t before = first;
        while (c < before && !first.compare_exchange_weak(before, c)) {
        }
      }
    }
  });
  return first == shape.num_classes ? -1 : first.load();
}

void BuildKernelTree(const TreeShape& shape, const TreeRows& rows, const ParallelFor& parallel,
                     float* sums) {
  UpdateKernelTree(shape, rows, nullptr, parallel, sums);
}

int64_t UpdateKernelTree(const TreeShape& shape, const TreeRows& rows, const uint8_t* flags,
                         const ParallelFor& parallel, float* sums) {
  std::vector<int64_t> leaves = FlaggedLeaves(shape, flags);
  const int64_t num_changed = SumLeaves(shape, rows, leaves, parallel, sums);
  SumAbove(shape, std::move(leaves), TreeWidth(rows.dim()), parallel, sums);
  return num_changed;
}

}  // namespace largeout
