// The kernel tree of Blanc and Rendle 2018, "Adaptive sampled softmax with kernel based
// sampling", section 3.2. It draws classes in proportion to the quadratic kernel K(h, w_c) =
// alpha <h, w_c>^2 + 1 of a query and the rows of the classes, in O(dim^2 log num_classes). A
// draw starts at the root and descends to a child in proportion to the child's kernel mass
// alpha h' Z h + size. At a leaf, all classes are scored. kernel_tree_shape.h describes the
// layout of the sums.
//
// phi(h), which has the width of a row of sums, has h_i h_i at [i, i] and 2 h_i h_j at [i, j],
// so that <phi(h), Z> = h' Z h.
//
// The results do not depend on the number of threads. Each draw depends only on its query, the
// tree, the seed and the number of the draw.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_KERNEL_TREE_KERNEL_TREE_H_
#define LARGEOUT_CUSTOM_OPS_CORE_KERNEL_TREE_KERNEL_TREE_H_

#include <cstdint>

#include "custom_ops/core/base/parallel.h"
#include "custom_ops/core/class_scan/class_scan_types.h"
#include "custom_ops/core/kernel_tree/kernel_tree_shape.h"

namespace largeout {

// The rows that a tree sums. Without a projection, they are the rows of the matrix, with the
// bias as an additional number. With a projection, they are `projected`: the same rows times
// the projection, without a bias.
struct TreeRows {
  ClassMatrix matrix;
  const float* projection = nullptr;  // [projected_dim, input_dim()], or null
  int64_t projected_dim = 0;
  float* projected = nullptr;  // [num_classes, projected_dim], written with the sums

  // The size of an embedding, including its bias.
  LARGEOUT_HOST_DEVICE int64_t input_dim() const {
    return matrix.dim + (matrix.bias != nullptr ? 1 : 0);
  }
  // The size of a row that is summed.
  LARGEOUT_HOST_DEVICE int64_t dim() const {
    return projection != nullptr ? projected_dim : input_dim();
  }
  // The rows that are summed.
  LARGEOUT_HOST_DEVICE ClassMatrix summed() const {
    if (projection == nullptr) return matrix;
    return {projected, nullptr, matrix.num_classes, projected_dim};
  }
};

// A set of classes: ids [size] in [-1, num_classes), which may repeat; -1 is padding. All
// classes if `ids` is null.
struct TreeClasses {
  const int64_t* ids = nullptr;
  int64_t size = 0;
};

// The largest allowed sum of squares of a summed row, for which sums over all classes do not
// overflow.
double LargestSquare(int64_t num_classes);

// Returns a class that an update with these classes reads and whose row is not finite or has a
// sum of squares above LargestSquare; -1 if there is none.
int64_t FindUnfitClass(const TreeShape& shape, const TreeRows& rows, const TreeClasses& classes,
                       const ParallelFor& parallel);

// Writes sums [num_nodes, TreeWidth(rows.dim())] of all rows, and the projected rows.
// O(num_classes dim^2).
void BuildKernelTree(const TreeShape& shape, const TreeRows& rows, const ParallelFor& parallel,
                     float* sums);

// Projects the rows of the classes, if there is a projection, and recomputes the sums of their
// leaves and of the nodes above them. If no other rows have changed, the result has the same
// bits as BuildKernelTree for the current rows. Returns how many of these leaves have changed.
int64_t UpdateKernelTree(const TreeShape& shape, const TreeRows& rows,
                         const TreeClasses& classes, const ParallelFor& parallel, float* sums);

// The inputs of the draws. The rows are the summed ones: those of the matrix, or the projected
// rows without a bias. Queries have no number for the bias; it is 1.
struct KernelTree {
  TreeShape shape;
  ClassMatrix rows;
  const float* sums;
  double alpha;

  LARGEOUT_HOST_DEVICE int64_t dim() const { return rows.dim + (rows.bias != nullptr ? 1 : 0); }
  LARGEOUT_HOST_DEVICE int64_t width() const { return TreeWidth(dim()); }
};

// The results of a step: draws, and the log probabilities of draws and labels. log_q is the log
// of the probability that one draw of the example gives the class: the product of the shares of
// the computed masses.
struct TreeSample {
  int64_t* ids;        // [draws.size()]
  float* log_q;        // [draws.size()]
  float* label_log_q;  // [batch, labels.width]; 0 for padding
};

// Draws for each query. Returns the first query whose masses are not all finite, for which
// nothing is written, or -1 if there is none. queries: [draws.batch, rows.dim]. labels: ids in
// [-1, num_classes), -1 for padding. REQUIRES: num_sampled + labels.width < 2^31.
int64_t SampleKernelTree(const KernelTree& tree, const Features& queries, const Labels& labels,
                         const TreeDraws& draws, PhiloxSeed seed, const ParallelFor& parallel,
                         const TreeSample& sample);

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_KERNEL_TREE_KERNEL_TREE_H_
