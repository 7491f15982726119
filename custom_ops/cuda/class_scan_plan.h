// How a pass over all classes is cut into blocks. Depends on the sizes only, and so do
// the results.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_CLASS_SCAN_PLAN_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_CLASS_SCAN_PLAN_H_

#include <cstdint>

#include "custom_ops/core/base/host_device.h"
#include "custom_ops/core/base/rounding.h"
#include "custom_ops/core/class_scan/class_scan_types.h"
#include "custom_ops/cuda/class_tile.h"

namespace largeout {
namespace cuda {

// Tiles of batch rows x classes: large ones for the arithmetic, low ones for batches
// where reading the classes is the limit.
using WideTile = TileShape<8, 8, 16, 16>;   // 128 x 128
using MiddleTile = TileShape<8, 4, 4, 64>;  // 32 x 256
using LowTile = TileShape<4, 4, 4, 64>;     // 16 x 256
using FlatTile = TileShape<4, 2, 1, 128>;   // 4 x 256

// Enough to keep a GPU busy, and few enough that their partial results are small.
inline constexpr int64_t kScanBlocks = 512;

// Every block takes one tile of rows through one shard of the classes. Blocks that run
// together have the same shard, so that its rows are read from memory once.
struct ScanPlan {
  int64_t batch;
  int64_t num_classes;
  int64_t row_tiles;
  int64_t shards;
  int64_t shard_classes;  // a multiple of the tile

  LARGEOUT_HOST_DEVICE int64_t blocks() const { return row_tiles * shards; }
  LARGEOUT_HOST_DEVICE int64_t row_tile(int64_t block) const { return block % row_tiles; }
  LARGEOUT_HOST_DEVICE int64_t shard(int64_t block) const { return block / row_tiles; }
  LARGEOUT_HOST_DEVICE int64_t begin(int64_t shard) const { return shard * shard_classes; }
  LARGEOUT_HOST_DEVICE int64_t end(int64_t shard) const {
    const int64_t end = begin(shard) + shard_classes;
    return end < num_classes ? end : num_classes;
  }
};

// The plan for tiles of `rows` x `columns`.
inline ScanPlan MakeScanPlan(int64_t batch, int64_t num_classes, int64_t rows,
                             int64_t columns) {
  ScanPlan plan{batch, num_classes, CeilDiv(batch, rows), 0, 0};
  const int64_t tiles = CeilDiv(num_classes, columns);
  const int64_t wanted = CeilDiv(kScanBlocks, plan.row_tiles > 0 ? plan.row_tiles : 1);
  plan.shard_classes = CeilDiv(tiles, wanted < tiles ? wanted : tiles) * columns;
  plan.shards = CeilDiv(num_classes, plan.shard_classes);
  return plan;
}

template <class Shape>
ScanPlan MakeScanPlan(int64_t batch, int64_t num_classes) {
  return MakeScanPlan(batch, num_classes, Shape::kRows, Shape::kColumns);
}

// Calls use(shape) with the shape of tiles for the batch. Three middle tiles take less time
// than a wide one that is not full.
template <class Use>
auto WithTileFor(int64_t batch, const Use& use) {
  if (batch <= FlatTile::kRows) return use(FlatTile());
  if (batch <= LowTile::kRows) return use(LowTile());
  return batch <= 3 * MiddleTile::kRows ? use(MiddleTile()) : use(WideTile());
}

// The same tiles, which read by fours where the rows of both allow it.
template <class Use>
auto WithTileFor(const ClassMatrix& matrix, const Features& features, const Use& use) {
  const bool by_fours = AlignedForFour(matrix.embeddings, matrix.dim) &&
                        AlignedForFour(features.data, matrix.dim);
  return WithTileFor(features.batch, [&](auto shape) {
    return by_fours ? use(typename decltype(shape)::ByFours()) : use(shape);
  });
}

}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_CLASS_SCAN_PLAN_H_
