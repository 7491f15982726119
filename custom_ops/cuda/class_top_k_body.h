// The kernels of class_top_k.cu.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_CLASS_TOP_K_BODY_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_CLASS_TOP_K_BODY_H_

#include <cstdint>

#include "custom_ops/core/class_scan/class_scan_types.h"
#include "custom_ops/core/class_scan/lost_logits.h"
#include "custom_ops/cuda/best_lists.h"
#include "custom_ops/cuda/class_logits.h"
#include "custom_ops/cuda/class_scan_plan.h"

namespace largeout {
namespace cuda {

// A block finds the k best classes of one tile of examples in one shard.
template <class Shape>
struct TopKBody {
  ClassMatrix matrix;
  Features features;
  int64_t k;
  ScanPlan plan;
  ScoreKey* lists;  // [blocks, kRows, k + kWaiting]

  static constexpr int kThreads = Shape::kThreads;
  static constexpr int kBlocksTogether = Shape::kBlocksTogether;
  static constexpr int kWaiting = 2 * Shape::kColumns;
  static constexpr int kProductBytes = 4 * kProductFloats<Shape>;

  static int64_t SharedBytes(int64_t k) {
    return kProductBytes + BestListsSharedBytes(Shape::kRows, k, kWaiting);
  }

  template <class Block>
  LARGEOUT_DEVICE void operator()(const Block& block, char* shared) const {
    for (int64_t item = block.index(); item < plan.blocks(); item += block.num_blocks()) {
      Scan(block, item, shared);
    }
  }

 private:
  template <class Block>
  LARGEOUT_DEVICE void Scan(const Block& block, int64_t item, char* shared) const {
    const int64_t shard = plan.shard(item), first_row = plan.row_tile(item) * Shape::kRows;
    const BestLists<Block, kWaiting> best(block, Shape::kRows, plan.batch - first_row, k,
                                          lists + item * Shape::kRows * (k + kWaiting),
                                          shared + kProductBytes);
    ClassLogits<Shape, Block> logits(block, reinterpret_cast<float*>(shared));
    for (int64_t c = plan.begin(shard); c < plan.end(shard); c += Shape::kColumns) {
      best.MakeRoom();  // before the logits are computed, because they fill the registers
      logits.Compute(matrix, features, first_row, c);
      block.ForEachThread([&](int thread) {
        PushTile(logits.tile()[thread], thread, static_cast<int32_t>(c), best);
      });
    }
    best.Finish();
  }

  template <class Lists>
  LARGEOUT_DEVICE void PushTile(const TileSums<Shape>& logits, int thread, int32_t first_class,
                                const Lists& best) const {
    LARGEOUT_UNROLL
    for (int i = 0; i < Shape::kTileRows; ++i) {
      const int row = Shape::Row(Shape::RowGroup(thread), i);
      const float limit = best.limit(row);
      LARGEOUT_UNROLL
      for (int j = 0; j < Shape::kTileColumns; ++j) {
        if (!(logits.at[i][j] > limit)) continue;
        const int32_t id = first_class + Shape::Column(Shape::ColumnGroup(thread), j);
        best.Push(row, {logits.at[i][j], id});
      }
    }
  }
};

inline constexpr int kMergeThreads = 256;
inline constexpr int kMergeWaiting = 2 * kMergeThreads;

// Merges the k best classes of all shards. A block merges one example.
struct MergeTopKBody {
  ClassMatrix matrix;
  Features features;
  int64_t k;
  ScanPlan plan;
  int64_t tile_rows;      // number of examples per tile of the lists
  int64_t stride;         // distance between the lists of two examples
  const ScoreKey* lists;  // [blocks, tile_rows, stride]
  ScoreKey* area;         // [batch, k + kMergeWaiting]
  float* scores;          // [batch, k]
  int64_t* ids;           // [batch, k]

  static int64_t SharedBytes(int64_t k) { return BestListsSharedBytes(1, k, kMergeWaiting); }

  template <class Block>
  LARGEOUT_DEVICE void operator()(const Block& block, char* shared) const {
    for (int64_t row = block.index(); row < plan.batch; row += block.num_blocks()) {
      const BestLists<Block, kMergeWaiting> best(block, 1, 1, k,
                                                 area + row * (k + kMergeWaiting), shared);
      for (int64_t first = 0; first < plan.shards * k; first += kMergeThreads) {
        best.MakeRoom();
        block.ForEachThread([&](int thread) { Offer(row, first + thread, best); });
      }
      best.Finish();
      block.ForEachThread([&](int thread) {
        for (int64_t i = thread; i < best.size(0); i += kMergeThreads) {
          Write(row, i, EntryOf(best.list(0)[i]));
        }
        if (thread == 0) FillUp(row, best.list(0), best.size(0));
      });
    }
  }

 private:
  // Pushes entry i of the lists of all shards.
  template <class Lists>
  LARGEOUT_DEVICE void Offer(int64_t row, int64_t i, const Lists& best) const {
    if (i >= plan.shards * k) return;
    const int64_t block = i / k * plan.row_tiles + row / tile_rows;
    const ScoredClass entry =
        EntryOf(lists[(block * tile_rows + row % tile_rows) * stride + i % k]);
    if (entry.id != kNoId && entry.score > best.limit(0)) best.Push(0, entry);
  }

  LARGEOUT_DEVICE void Write(int64_t row, int64_t i, const ScoredClass& entry) const {
    const bool lost = IsLost(matrix, entry);
    scores[row * k + i] = lost ? NotANumber() : entry.score;
    ids[row * k + i] = lost ? -1 : entry.id;
  }

  // If an example has fewer than k logits above -inf, appends the lowest other ids.
  LARGEOUT_DEVICE void FillUp(int64_t row, const ScoreKey* list, int64_t size) const {
    const float* const feature = features.data + row * matrix.dim;
    int64_t end = size;
    for (int32_t id = 0; end < k; ++id) {
      bool listed = false;
      for (int64_t i = 0; i < size; ++i) listed = listed || EntryOf(list[i]).id == id;
      if (!listed) Write(row, end++, {OneLogit(matrix, feature, id), id});
    }
  }
};

}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_CLASS_TOP_K_BODY_H_
