// Kernel trees on the GPU, equal to those of core/kernel_tree/kernel_tree.h up to rounding.
//
// Nothing here is refused, as the host does not see it: of rows whose numbers are not finite or
// too large the sums become NaN or infinite, up to the root, and are right again once their
// leaves are summed with sound rows.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_KERNEL_TREE_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_KERNEL_TREE_H_

#include <cstdint>

#include "custom_ops/core/kernel_tree/kernel_tree.h"
#include "custom_ops/cuda/stream.h"

namespace largeout {
namespace cuda {

// sums, and the projected rows, as in core. All arrays, those in `rows` too, are on the device.
Status BuildKernelTree(const TreeShape& shape, const TreeRows& rows, float* sums,
                       Stream stream);

// O(num_nodes).
int64_t UpdateKernelTreeScratchBytes(const TreeShape& shape);

// Sums the leaves of these classes anew, and the nodes above them: the sums are those of
// BuildKernelTree, bit for bit, if no other rows have changed. Unlike in core, all rows of
// these leaves are projected, not those of the classes alone: the others become what they were,
// if they have not changed. ids: [num_ids], any may repeat; those that are no class are passed
// over. *num_changed becomes the number of leaves that have other sums than before. All arrays
// are on the device.
Status UpdateKernelTree(const TreeShape& shape, const TreeRows& rows, const int64_t* ids,
                        int64_t num_ids, void* scratch, float* sums, int64_t* num_changed,
                        Stream stream);

// How a batch draws; only this and the tree's shape and dim decide about scratch.
struct TreeWalk {
  int64_t batch;
  int64_t num_sampled;
  bool shared;           // whether the draws are num_sampled in all, else for each query
  int64_t labels_width;  // of the labels of a query
};

// O(num_sampled + labels_width + leaf_size + dim^2) for each query, and for as many queries as
// walk at once: up to 2,048 in 256 MB, or one.
int64_t SampleKernelTreeScratchBytes(const KernelTree& tree, const TreeWalk& walk);

// Draws and log q as in core, with the same random bits: a draw is another than the CPU's only
// where it falls between two classes whose masses are rounded otherwise. A block is a query:
// its draws and labels go down together, level by level, and it reads the sums of the children
// of each node that they are at once. Where masses of a query are not all finite, its draws are
// class 0, with log q NaN, as is that of its labels. Labels that are no class have log q NaN,
// those of -1 have 0. seed: int64 [2]; all arrays, those in the arguments too, are on the
// device.
// REQUIRES: num_sampled + labels_width < 2^31.
Status SampleKernelTree(const KernelTree& tree, const float* queries, const int64_t* labels,
                        const TreeWalk& walk, const int64_t* seed, void* scratch,
                        const TreeSample& sample, Stream stream);

}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_KERNEL_TREE_H_
