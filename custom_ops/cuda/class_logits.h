// Logits o_c = <w_c, h> + b_c, one tile at a time, for the passes over all classes.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_CLASS_LOGITS_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_CLASS_LOGITS_H_

#include <cstdint>

#include "custom_ops/core/class_scan/class_scan_types.h"
#include "custom_ops/cuda/class_tile.h"

namespace largeout {
namespace cuda {

LARGEOUT_DEVICE inline float BiasOf(const ClassMatrix& matrix, int64_t id) {
  return matrix.bias != nullptr && id < matrix.num_classes ? matrix.bias[id] : 0.0f;
}

// One logit, with the same bits as in a tile: the sum starts with the bias, in the order of the
// features.
LARGEOUT_DEVICE inline float OneLogit(const ClassMatrix& matrix, const float* feature,
                                      int64_t id) {
  const float* const row = matrix.embeddings + id * matrix.dim;
  float sum = BiasOf(matrix, id);
  LARGEOUT_UNROLL_BY(16)
  for (int64_t k = 0; k < matrix.dim; ++k) sum = MultiplyAdd(feature[k], row[k], sum);
  return sum;
}

// Computes tiles of examples x classes.
template <class Shape, class Block>
class ClassLogits {
 public:
  using Tile = typename TileProduct<Shape, Block>::Sums;

  LARGEOUT_DEVICE ClassLogits(const Block& block, float* shared)
      : block_(block), product_(block, shared), tile_(block) {}

  // The tile that starts at `first_row` and `first_class`. Logits after the last class are
  // -inf.
  LARGEOUT_DEVICE void Compute(const ClassMatrix& matrix, const Features& features,
                               int64_t first_row, int64_t first_class) {
    block_.ForEachThread([&](int thread) {
      ForEachColumn(thread, first_class, [&](int64_t id, int j) {
        SetColumn(j, BiasOf(matrix, id), &tile_[thread]);
      });
    });
    product_.Add({features.data, features.batch}, first_row,
                 {matrix.embeddings, matrix.num_classes}, first_class, matrix.dim, &tile_);
    if (first_class + Shape::kColumns <= matrix.num_classes) return;
    block_.ForEachThread([&](int thread) {
      ForEachColumn(thread, first_class, [&](int64_t id, int j) {
        if (id >= matrix.num_classes) SetColumn(j, MinusInfinity(), &tile_[thread]);
      });
    });
  }

  LARGEOUT_DEVICE Tile& tile() { return tile_; }

 private:
  template <class Visit>
  LARGEOUT_DEVICE static void ForEachColumn(int thread, int64_t first_class,
                                            const Visit& visit) {
    const int group = Shape::ColumnGroup(thread);
    LARGEOUT_UNROLL
    for (int j = 0; j < Shape::kTileColumns; ++j) {
      visit(first_class + Shape::Column(group, j), j);
    }
  }

  LARGEOUT_DEVICE static void SetColumn(int j, float value, TileSums<Shape>* tile) {
    LARGEOUT_UNROLL
    for (int i = 0; i < Shape::kTileRows; ++i) tile->at[i][j] = value;
  }

  const Block& block_;
  TileProduct<Shape, Block> product_;
  Tile tile_;
};

}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_CLASS_LOGITS_H_
