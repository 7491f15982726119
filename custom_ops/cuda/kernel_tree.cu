#include <algorithm>

#include "custom_ops/core/base/rounding.h"
#include "custom_ops/cuda/kernel_tree.h"
#include "custom_ops/cuda/kernel_tree_sums_body.h"
#include "custom_ops/cuda/kernel_tree_walk_body.h"
#include "custom_ops/cuda/launch.cuh"
#include "custom_ops/cuda/memory.h"

namespace largeout {
namespace cuda {
namespace {

// The number of blocks. Further queries wait for a block.
constexpr int64_t kMostWalkBlocks = 2048;
// If a query needs much memory, fewer blocks run, but at least one.
constexpr int64_t kMostWalkBytes = int64_t{1} << 28;

template <class Body>
Status MakeTiles(const Body& body, Stream stream) {
  return ForEachBlock(body.NumTiles(), TreeTile::kThreads, kTreeTileBytes, body, stream);
}

// Sums the leaves that have a flag, or all leaves.
Status SumLeaves(const TreeToSum& tree, Stream stream) {
  Status status = kOk;
  if (tree.rows.projection != nullptr) status = MakeTiles(ProjectRowsBody{tree}, stream);
  if (status == kOk) status = MakeTiles(SumLeavesBody{tree}, stream);
  return status;
}

// Sums the nodes above them.
Status SumAbove(const TreeToSum& tree, Stream stream) {
  const int64_t width = TreeWidth(tree.rows.dim());
  Status status = kOk;
  for (int level = 1; level < tree.shape.num_levels && status == kOk; ++level) {
    status = ForEach(tree.shape.num_nodes(level) * width, SumChildren{tree, level}, stream);
  }
  return status;
}

WalkMemory MemoryFor(const KernelTree& tree, const TreeWalk& walk) {
  const TreeShape& shape = tree.shape;
  const int64_t batch = std::max<int64_t>(walk.batch, 1);
  const int64_t draws = walk.shared ? CeilDiv(walk.num_sampled, batch) : walk.num_sampled;
  return {std::max<int64_t>(kTreeChildren, shape.size(shape.leaf_size, 0)),
          draws + walk.labels_width, tree.width()};
}

int64_t NumBlocks(const WalkMemory& memory, const TreeWalk& walk) {
  const int64_t most = std::clamp<int64_t>(kMostWalkBytes / memory.Bytes(), 1, kMostWalkBlocks);
  return std::min(walk.batch, most);
}

}  // namespace

Status BuildKernelTree(const TreeShape& shape, const TreeRows& rows, float* sums,
                       Stream stream) {
  const TreeToSum tree = {shape, rows, nullptr, sums};
  const Status status = SumLeaves(tree, stream);
  return status == kOk ? SumAbove(tree, stream) : status;
}

int64_t UpdateKernelTreeScratchBytes(const TreeShape& shape) {
  Scratch scratch(nullptr);
  scratch.Take<uint32_t>(shape.num_nodes());
  return scratch.bytes();
}

Status UpdateKernelTree(const TreeShape& shape, const TreeRows& rows, const int64_t* ids,
                        int64_t num_ids, void* scratch, float* sums, int64_t* num_changed,
                        Stream stream) {
  Scratch parts(scratch);
  const TreeToSum tree = {shape, rows, parts.Take<uint32_t>(shape.num_nodes()), sums};
  Status status = FillBytes(0, shape.num_nodes() * sizeof(uint32_t), tree.flags, stream);
  if (status == kOk) status = ForEach(num_ids, FlagLeaves{tree, ids}, stream);
  if (status == kOk) status = SumLeaves(tree, stream);
  if (status == kOk) {
    status = ForEachBlock(1, kCountThreads, CountChangedBody::kSharedBytes,
                          CountChangedBody{tree, num_changed}, stream);
  }
  return status == kOk ? SumAbove(tree, stream) : status;
}

int64_t SampleKernelTreeScratchBytes(const KernelTree& tree, const TreeWalk& walk) {
  const WalkMemory memory = MemoryFor(tree, walk);
  return NumBlocks(memory, walk) * memory.Bytes();
}

Status SampleKernelTree(const KernelTree& tree, const float* queries, const int64_t* labels,
                        const TreeWalk& walk, const int64_t* seed, void* scratch,
                        const TreeSample& sample, Stream stream) {
  const WalkMemory memory = MemoryFor(tree, walk);
  const WalkTreeBody body{
      tree, queries, labels, walk, seed, memory, static_cast<char*>(scratch), sample};
  return ForEachBlock(NumBlocks(memory, walk), kWalkThreads, WalkMemory::kSharedBytes, body,
                      stream);
}

}  // namespace cuda
}  // namespace largeout
