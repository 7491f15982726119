#include "custom_ops/core/kernel_tree/kernel_tree.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <iterator>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "custom_ops/core/base/aligned_array.h"
#include "custom_ops/core/base/simd_level.h"
#include "custom_ops/core/class_scan/float_row.h"
#include "custom_ops/core/kernel_tree/kernel_tree_simd.h"
#include "custom_ops/core/linear_algebra/dense_product_simd.h"

namespace largeout {
namespace {

// Rows of Z that are summed at once: whole tiles of a product.
constexpr int64_t kPairRows = 12;

constexpr int64_t kProjectedRows = 48;  // rows that are projected at once

// Copies the embedding and the bias of a class, in float32.
void CopyRow(const ClassMatrix& matrix, int64_t id, float* to) {
  const float* row = FloatRow(matrix, id, to);
  if (row != to) std::copy_n(row, matrix.dim, to);
  if (matrix.bias != nullptr) to[matrix.dim] = matrix.bias[id];
}

// Computes projected rows. For one thread.
class Projector {
 public:
  explicit Projector(const TreeRows& rows)
      : rows_(rows),
        depth_(rows.input_dim()),
        stride_(RoundUp(rows.projected_dim, kWidthMultiple)),
        transposed_(depth_ * stride_),
        inputs_(kProjectedRows * depth_),
        outputs_(kProjectedRows * stride_) {
    std::fill_n(transposed_.get(), depth_ * stride_, 0.0f);
    for (int64_t i = 0; i < rows.projected_dim; ++i) {
      for (int64_t k = 0; k < depth_; ++k) {
        transposed_.get()[k * stride_ + i] = rows.projection[i * depth_ + k];
      }
    }
  }

  // id_of(i) is the class of row i, for i in [begin, end).
  template <class IdOf>
  void Write(int64_t begin, int64_t end, const IdOf& id_of) {
    for (int64_t first = begin; first < end; first += kProjectedRows) {
      const int64_t size = std::min(kProjectedRows, end - first);
      for (int64_t i = 0; i < size; ++i) {
        CopyRow(rows_.matrix, id_of(first + i), inputs_.data() + i * depth_);
      }
      std::fill_n(outputs_.get(), size * stride_, 0.0f);
      LARGEOUT_SIMD_DISPATCH(AddProduct, {size, depth_, stride_}, {inputs_.data(), depth_, 1},
                             transposed_.get(), stride_, outputs_.get(), stride_);
      for (int64_t i = 0; i < size; ++i) {
        std::copy_n(outputs_.get() + i * stride_, rows_.projected_dim,
                    rows_.projected + id_of(first + i) * rows_.projected_dim);
      }
    }
  }

 private:
  const TreeRows& rows_;
  const int64_t depth_, stride_;
  AlignedFloats transposed_;  // [input_dim, stride]
  std::vector<float> inputs_;
  AlignedFloats outputs_;
};

// Computes the sums of leaves. For one thread.
class LeafSums {
 public:
  LeafSums(const TreeShape& shape, const TreeRows& rows)
      : shape_(shape),
        matrix_(rows.summed()),
        dim_(rows.dim()),
        stride_(RoundUp(dim_, kWidthMultiple)),
        rows_(shape.leaf_size * stride_),
        block_(kPairRows * stride_) {
    // Including the padding of each row.
    std::fill_n(rows_.get(), shape.leaf_size * stride_, 0.0f);
  }

  // sums: [TreeWidth(dim)].
  void Write(int64_t leaf, float* sums) {
    const int64_t size = shape_.size(shape_.leaf_size, leaf);
    for (int64_t c = 0; c < size; ++c) {
      CopyRow(matrix_, leaf * shape_.leaf_size + c, rows_.get() + c * stride_);
    }
    for (int64_t first = 0; first < dim_; first += kPairRows) {
      const int64_t last = std::min(first + kPairRows, dim_);
      std::fill_n(block_.get(), kPairRows * stride_, 0.0f);
      LARGEOUT_SIMD_DISPATCH(AddProduct, {last - first, size, RoundUp(last, kWidthMultiple)},
                             {rows_.get() + first, 1, stride_}, rows_.get(), stride_,
                             block_.get(), stride_);
      for (int64_t i = first; i < last; ++i) {
        std::copy_n(block_.get() + (i - first) * stride_, i + 1, sums + PlaceOfPair(i, 0));
      }
    }
    std::fill(sums + PlaceOfPair(dim_, 0), sums + TreeWidth(dim_), 0.0f);
  }

 private:
  const TreeShape& shape_;
  const ClassMatrix matrix_;
  const int64_t dim_, stride_;
  AlignedFloats rows_;   // rows of a leaf
  AlignedFloats block_;  // some rows of its sums
};

int64_t CyclesOfLeaf(const TreeShape& shape, const TreeRows& rows) {
  return shape.leaf_size * (TreeWidth(rows.dim()) + 4 * rows.dim()) / 8;
}

// Sets nodes of `level` to the sums of their children.
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

// Updates the nodes above these leaves, level by level. nodes: increasing.
void SumAbove(const TreeShape& shape, std::vector<int64_t> nodes, int64_t width,
              const ParallelFor& parallel, float* sums) {
  for (int level = 1; level < shape.num_levels; ++level) {
    for (int64_t& node : nodes) node /= kTreeChildren;
    nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
    SumChildren(shape, level, nodes, width, parallel, sums);
  }
}

// The distinct ids, increasing.
std::vector<int64_t> Distinct(const TreeClasses& classes, int64_t num_classes) {
  std::vector<int64_t> ids;
  if (classes.ids == nullptr) {
    ids.resize(num_classes);
    std::iota(ids.begin(), ids.end(), int64_t{0});
    return ids;
  }
  std::copy_if(classes.ids, classes.ids + classes.size, std::back_inserter(ids),
               [](int64_t id) { return id >= 0; });
  if (!std::is_sorted(ids.begin(), ids.end())) std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

// The leaves of increasing ids, increasing.
std::vector<int64_t> LeavesOf(const TreeShape& shape, std::vector<int64_t> ids) {
  for (int64_t& id : ids) id /= shape.leaf_size;
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

// Sums these leaves. Returns how many sums have changed.
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

// The largest factor by which the projection can increase the sum of squares of a row.
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

int64_t FindUnfitClass(const TreeShape& shape, const TreeRows& rows, const TreeClasses& classes,
                       const ParallelFor& parallel) {
  // Without a projection, all rows of a leaf are read.
  const int64_t group = rows.projection != nullptr ? 1 : shape.leaf_size;
  std::vector<int64_t> groups = Distinct(classes, shape.num_classes);
  if (group > 1) groups = LeavesOf(shape, std::move(groups));
  const ClassMatrix& matrix = rows.matrix;
  const double limit = LargestSquare(shape.num_classes) / SquareOfProjection(rows);
  std::atomic<int64_t> first{shape.num_classes};
  const auto is_unfit = [&](int64_t c, std::vector<float>* widened) {
    float square = 0;
    const float* row = FloatRow(matrix, c, widened->data());
    LARGEOUT_SIMD_DISPATCH(SumSquares, row, matrix.dim, &square);
    const double bias = matrix.bias != nullptr ? matrix.bias[c] : 0;
    return !(square + bias * bias <= limit);
  };
  parallel(groups.size(), group * matrix.dim / 4 + 10, [&](int64_t begin, int64_t end) {
    std::vector<float> widened(matrix.bfloat16_rows != nullptr ? matrix.dim : 0);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t from = groups[i] * group, to = from + shape.size(group, groups[i]);
      for (int64_t c = from; c < to && c < first; ++c) {
        if (!is_unfit(c, &widened)) continue;
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
  UpdateKernelTree(shape, rows, {}, parallel, sums);
}

int64_t UpdateKernelTree(const TreeShape& shape, const TreeRows& rows,
                         const TreeClasses& classes, const ParallelFor& parallel, float* sums) {
  std::vector<int64_t> ids = Distinct(classes, shape.num_classes);
  if (rows.projection != nullptr) {
    const int64_t cost = rows.input_dim() * (rows.dim() / 8 + 2);
    parallel(ids.size(), cost, [&](int64_t begin, int64_t end) {
      Projector(rows).Write(begin, end, [&](int64_t i) { return ids[i]; });
    });
  }
  std::vector<int64_t> leaves = LeavesOf(shape, std::move(ids));
  const int64_t num_changed = SumLeaves(shape, rows, leaves, parallel, sums);
  SumAbove(shape, std::move(leaves), TreeWidth(rows.dim()), parallel, sums);
  return num_changed;
}

}  // namespace largeout
