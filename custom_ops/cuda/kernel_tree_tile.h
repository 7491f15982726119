// The product of a tile of rows with a tile of columns, in the registers of a block, for the
// sums of kernel trees. Chunks of the depth go through shared memory.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_KERNEL_TREE_TILE_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_KERNEL_TREE_TILE_H_

#include <cstdint>

#include "custom_ops/cuda/block_tools.h"

namespace largeout {
namespace cuda {

// A thread keeps kSums x kSums sums: those of rows Row(thread, i) and columns Column(thread, j)
// of the tile.
struct TreeTile {
  static constexpr int kSums = 4;
  static constexpr int kGroups = 8;  // of threads, in each direction
  static constexpr int kThreads = kGroups * kGroups;

  LARGEOUT_DEVICE static int Row(int thread, int i) { return thread / kGroups * kSums + i; }
  LARGEOUT_DEVICE static int Column(int thread, int j) { return thread % kGroups * kSums + j; }
};

inline constexpr int kTreeTile = TreeTile::kSums * TreeTile::kGroups;  // rows, and columns
inline constexpr int kTreeChunk = 8;                                   // the depth of a chunk
inline constexpr int kTreeTileStride = kTreeTile + 4;                  // avoids bank conflicts
inline constexpr int kTreeTileBytes =
    2 * kTreeChunk * kTreeTileStride * static_cast<int>(sizeof(float));

// The sums of one thread.
struct TreeTileSums {
  float at[TreeTile::kSums][TreeTile::kSums];
};

// sums[i][j] += rows[k, Row(i)] * columns[k, Column(j)], for the k of a chunk in order.
LARGEOUT_DEVICE inline void AddChunk(const float* rows, const float* columns, int thread,
                                     TreeTileSums* sums) {
  LARGEOUT_UNROLL
  for (int k = 0; k < kTreeChunk; ++k) {
    float a[TreeTile::kSums], b[TreeTile::kSums];
    LARGEOUT_UNROLL
    for (int i = 0; i < TreeTile::kSums; ++i) {
      a[i] = rows[k * kTreeTileStride + TreeTile::Row(thread, i)];
      b[i] = columns[k * kTreeTileStride + TreeTile::Column(thread, i)];
    }
    LARGEOUT_UNROLL
    for (int i = 0; i < TreeTile::kSums; ++i) {
      LARGEOUT_UNROLL
      for (int j = 0; j < TreeTile::kSums; ++j) {
        sums->at[i][j] = MultiplyAdd(a[i], b[j], sums->at[i][j]);
      }
    }
  }
}

// Calls write(i, j, sum over s < depth of rows(s, i) columns(s, j)) for the i and j of a tile.
// Sums are in the order of s.
template <class Block, class Rows, class Columns, class Write>
LARGEOUT_DEVICE void MakeTreeTile(const Block& block, int64_t depth, const Rows& rows,
                                  const Columns& columns, char* shared, const Write& write) {
  float* const of_rows = reinterpret_cast<float*>(shared);
  float* const of_columns = of_rows + kTreeChunk * kTreeTileStride;
  typename Block::template PerThread<TreeTileSums> sums(block);
  block.ForEachThread([&](int thread) { sums[thread] = {}; });
  for (int64_t first = 0; first < depth; first += kTreeChunk) {
    block.ForEachThread([&](int thread) {
      for (int i = thread; i < kTreeChunk * kTreeTile; i += TreeTile::kThreads) {
        const int row = i / kTreeTile, column = i % kTreeTile;
        const bool in = first + row < depth;
        of_rows[row * kTreeTileStride + column] = in ? rows(first + row, column) : 0;
        of_columns[row * kTreeTileStride + column] = in ? columns(first + row, column) : 0;
      }
    });
    block.ForEachThread(
        [&](int thread) { AddChunk(of_rows, of_columns, thread, &sums[thread]); });
  }
  block.ForEachThread([&](int thread) {
    LARGEOUT_UNROLL
    for (int i = 0; i < TreeTile::kSums; ++i) {
      LARGEOUT_UNROLL
      for (int j = 0; j < TreeTile::kSums; ++j) {
        write(TreeTile::Row(thread, i), TreeTile::Column(thread, j), sums[thread].at[i][j]);
      }
    }
  });
}

}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_KERNEL_TREE_TILE_H_
