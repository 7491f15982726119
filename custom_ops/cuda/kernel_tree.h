// Kernel trees on the GPU, equal to those of core/kernel_tree/kernel_tree.h up to rounding.
//
// Nothing is refused, because the host does not see the numbers. If rows are not finite or are
// too large, their sums become NaN or infinite up to the root. The sums are correct again after
// the leaves are updated with valid rows.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_KERNEL_TREE_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_KERNEL_TREE_H_

#include <cstdint>

#include "custom_ops/core/kernel_tree/kernel_tree.h"
#include "custom_ops/cuda/stream.h"

namespace largeout {
namespace cuda {

// Writes the sums and the projected rows, as in core. All arrays, including those in `rows`,
// are on the device.
Status BuildKernelTree(const TreeShape& shape, const TreeRows& rows, float* sums,
                       Stream stream);

// O(num_nodes).
int64_t UpdateKernelTreeScratchBytes(const TreeShape& shape);

// Recomputes the sums of the leaves of these classes and of the nodes above them. If no other
// rows have changed, the sums have the same bits as those of BuildKernelTree. Unlike in core,
// all rows of these leaves are projected, and not only those of the classes: rows that have not
// changed get the same projection again. ids: [num_ids], which may repeat; invalid ids are
// skipped. *num_changed becomes the number of leaves whose sums have changed. All arrays are on
// the device.
Status UpdateKernelTree(const TreeShape& shape, const TreeRows& rows, const int64_t* ids,
                        int64_t num_ids, void* scratch, float* sums, int64_t* num_changed,
                        Stream stream);

// How a batch draws. Only this, the shape of the tree and dim determine the size of the
// scratch.
struct TreeWalk {
  int64_t batch;
  int64_t num_sampled;
  bool shared;  // whether num_sampled is the total number of draws, or the number per query
  int64_t labels_width;  // labels per query
};

// O(num_sampled + labels_width + leaf_size + dim^2) for each query that is processed at once:
// up to 2,048 queries in up to 256 MB, but at least one.
int64_t SampleKernelTreeScratchBytes(const KernelTree& tree, const TreeWalk& walk);

// Draws and log q as in core, with the same random bits. A draw differs from the CPU's only if
// it falls between two classes whose masses are rounded differently. A block processes one
// query: its draws and labels descend together, level by level, so that the sums of the
// children of each visited node are read once. If a mass of a query is not finite, its draws
// are class 0 and all its log q are NaN. The log q of a label is NaN if its id is out of range,
// and 0 if it is -1 (padding). seed: int64 [2]. All arrays, including those in the arguments,
// are on the device. REQUIRES: num_sampled + labels_width < 2^31.
Status SampleKernelTree(const KernelTree& tree, const float* queries, const int64_t* labels,
                        const TreeWalk& walk, const int64_t* seed, void* scratch,
                        const TreeSample& sample, Stream stream);

}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_KERNEL_TREE_H_
