// How a pass over all classes is divided into blocks. The plan depends only on the sizes, and
// so do the bits of the results.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_CLASS_SCAN_PLAN_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_CLASS_SCAN_PLAN_H_

#include <cstdint>

#include "custom_ops/core/base/host_device.h"
#include "custom_ops/core/base/rounding.h"
#include "custom_ops/core/class_scan/class_scan_types.h"
#include "custom_ops/cuda/class_tile.h"

namespace largeout {
namespace cuda {

// Tiles of examples x classes. Large tiles suit batches that are bound by arithmetic; tiles of
// few examples suit batches that are bound by reading the classes.
using WideTile = TileShape<8, 8, 16, 16>;   // 128 x 128
using MiddleTile = TileShape<8, 4, 4, 64>;  // 32 x 256
using LowTile = TileShape<4, 4, 4, 64>;     // 16 x 256
using FlatTile = TileShape<4, 2, 1, 128>;   // 4 x 256

// Enough blocks to keep a GPU busy, and few enough for small partial results.
inline constexpr int64_t kScanBlocks = 512;

// A block processes one tile of examples for one shard of the classes. Blocks that run at the
// same time share a shard, so that its rows are read from memory once.
struct ScanPlan {
  int64_t batch;
  int64_t num_classes;
  int64_t row_tiles;
  int64_t shards;
  int64_t shard_classes;  // a multiple of the tile's number of classes

  LARGEOUT_HOST_DEVICE int64_t blocks() const { return row_tiles * shards; }
  LARGEOUT_HOST_DEVICE int64_t row_tile(int64_t block) const { return block % row_tiles; }
  LARGEOUT_HOST_DEVICE int64_t shard(int64_t block) const { return block / row_tiles; }
  LARGEOUT_HOST_DEVICE int64_t begin(int64_t shard) const { return shard * shard_classes; }
  LARGEOUT_HOST_DEVICE int64_t end(int64_t shard) const {
    const int64_t end = begin(shard) + shard_classes;
    return end < num_classes ? end : num_classes;
  }
};

// The plan for tiles of `rows` examples x `columns` classes.
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

// Calls use(shape) with the tile shape for the batch. Three middle tiles take less time than
// one wide tile that is not full.
template <class Use>
auto WithTileFor(int64_t batch, const Use& use) {
  if (batch <= FlatTile::kRows) return use(FlatTile());
  if (batch <= LowTile::kRows) return use(LowTile());
  return batch <= 3 * MiddleTile::kRows ? use(MiddleTile()) : use(WideTile());
}

// The same, with tiles that read four numbers at a time if the rows of both operands are
// aligned for it.
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
