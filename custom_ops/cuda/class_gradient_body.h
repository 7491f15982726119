// The kernels of class_gradient.cu.
//
// One kernel computes both gradients. For d_embeddings, a block owns a tile of classes and
// loops over all examples. For d_features, a block owns a tile of examples and loops over a
// shard of the classes. Below, "own" items are those that the block owns, and "passing" items
// are those that it loops over.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_CLASS_GRADIENT_BODY_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_CLASS_GRADIENT_BODY_H_

#include <cmath>
#include <cstdint>

#include "custom_ops/core/base/rounding.h"
#include "custom_ops/core/class_scan/class_scan_types.h"
#include "custom_ops/cuda/class_gradient_product.h"
#include "custom_ops/cuda/class_logits.h"
#include "custom_ops/cuda/class_scan.h"
#include "custom_ops/cuda/class_scan_plan.h"

namespace largeout {
namespace cuda {

// The batch in the form that the kernels need. Ignored examples have features of 0.
struct GradientBatch {
  Features features;
  Labels labels;
  ScanWeights weights;

  // Whether label i of the batch is a class and has a weight.
  LARGEOUT_DEVICE bool Weighs(int64_t i, int64_t num_classes) const {
    return labels.ids[i] >= 0 && labels.ids[i] < num_classes && weights.label_weights[i] != 0;
  }
};

inline constexpr int kCopyThreads = 256;
inline constexpr int kCopyLanes = 32;  // threads that copy the features of one example
inline constexpr int kCopiesPerBlock = kCopyThreads / kCopyLanes;

// Copies the features of the examples that have weights, and writes 0 for the others.
struct CopyFeaturesBody {
  GradientBatch batch;
  int64_t num_classes;
  int64_t dim;
  float* copy;

  template <class Block>
  LARGEOUT_DEVICE void operator()(const Block& block, char*) const {
    block.ForEachThread([&](int thread) {
      const int64_t step = block.num_blocks() * kCopiesPerBlock;
      int64_t row = block.index() * kCopiesPerBlock + thread / kCopyLanes;
      for (; row < batch.features.batch; row += step) {
        const bool in = TakesPart(row);
        for (int64_t k = thread % kCopyLanes; k < dim; k += kCopyLanes) {
          copy[row * dim + k] = in ? batch.features.data[row * dim + k] : 0.0f;
        }
      }
    });
  }

 private:
  LARGEOUT_DEVICE bool TakesPart(int64_t row) const {
    if (batch.weights.weights[row] != 0) return true;
    const int64_t width = batch.labels.width;
    for (int64_t i = row * width; i < (row + 1) * width; ++i) {
      if (batch.Weighs(i, num_classes)) return true;
    }
    return false;
  }
};

// The gradient of the own items: classes if kOwnClasses, else examples. Shape: own x passing
// items; OutShape: own items x columns of the gradient.
template <class ShapeOfTile, class ShapeOfOut, bool kOwnClasses>
struct GradientBody {
  using Shape = ShapeOfTile;
  using OutShape = ShapeOfOut;

  ClassMatrix matrix;
  GradientBatch batch;
  ScanPlan plan;  // for own items as "rows" and passing items as "classes"
  float* out;     // [shards, own, dim]
  float* d_bias;  // [own] or null

  static constexpr int kThreads = Shape::kThreads, kBlocksTogether = 2;
  static constexpr int kWeightStride = Shape::kRows + kPadding;
  static constexpr int kWeightFloats = Shape::kColumns * kWeightStride;
  static constexpr int kSharedBytes = 4 * (kWeightFloats + kProductFloats<Shape>);
  static_assert(kSharedBytes <= 48 * 1024, "fits any GPU");
  static_assert(2 * kChunk * (OutShape::kColumns + kPadding) <= kProductFloats<Shape>,
                "the products take turns");
  static_assert(Shape::kRows == OutShape::kRows && Shape::kThreads == OutShape::kThreads,
                "the same rows and threads");

  template <class Block>
  LARGEOUT_DEVICE void operator()(const Block& block, char* shared) const {
    for (int64_t item = block.index(); item < plan.blocks(); item += block.num_blocks()) {
      Scan(block, item, reinterpret_cast<float*>(shared));
    }
  }

 private:
  LARGEOUT_DEVICE Operand Classes() const { return {matrix.embeddings, matrix.num_classes}; }
  LARGEOUT_DEVICE Operand Rows() const { return {batch.features.data, batch.features.batch}; }

  template <class Block>
  LARGEOUT_DEVICE void Scan(const Block& block, int64_t item, float* weights) const {
    const Operand own = kOwnClasses ? Classes() : Rows();
    const Operand passing = kOwnClasses ? Rows() : Classes();
    const int64_t shard = plan.shard(item), first = plan.row_tile(item) * Shape::kRows;
    const int64_t rows = own.size - first, dim = matrix.dim;
    float* const to = out + (shard * own.size + first) * dim;
    float* const shared = weights + kWeightFloats;
    TileProduct<Shape, Block> product(block, shared);
    typename TileProduct<Shape, Block>::Sums logits(block);
    RowAccumulator<OutShape, Block> gradient(block, weights, shared);
    typename Block::template PerThread<float> bias_sums(block);
    const int64_t begin = plan.begin(shard);
    for (int64_t next = begin; next < plan.end(shard); next += Shape::kColumns) {
      block.ForEachThread([&](int thread) {
        SetToBias(first, next, thread, &logits[thread]);
        if (next == begin) bias_sums[thread] = 0;
      });
      product.Add(own, first, passing, next, dim, &logits);
      block.ForEachThread(
          [&](int thread) { WriteWeights(logits[thread], first, next, thread, weights); });
      block.ForEachThread([&](int thread) { AddLabels(first, next, thread, weights); });
      block.ForEachThread([&](int thread) {
        if (d_bias != nullptr) bias_sums[thread] += SumOfWeights(weights, thread);
      });
      gradient.Add(passing, next, Shape::kColumns, dim, rows, next == begin, to);
    }
    block.ForEachThread([&](int thread) {
      if (d_bias != nullptr && thread < Shape::kRows && thread < rows) {
        d_bias[first + thread] = bias_sums[thread];
      }
    });
  }

  LARGEOUT_DEVICE void SetToBias(int64_t first, int64_t next, int thread,
                                 TileSums<Shape>* logits) const {
    LARGEOUT_UNROLL
    for (int i = 0; i < Shape::kTileRows; ++i) {
      LARGEOUT_UNROLL
      for (int j = 0; j < Shape::kTileColumns; ++j) {
        const int64_t id = kOwnClasses ? first + Shape::Row(Shape::RowGroup(thread), i)
                                       : next + Shape::Column(Shape::ColumnGroup(thread), j);
        logits->at[i][j] = BiasOf(matrix, id);
      }
    }
  }

  // The numbers by which an example turns its logits into weights.
  struct RowTerm {
    float log_partition;
    float weight;  // 0 after the last example
  };

  LARGEOUT_DEVICE RowTerm TermOf(int64_t row) const {
    if (row >= batch.features.batch) return {0, 0};
    return {batch.weights.log_partition[row], batch.weights.weights[row]};
  }

  LARGEOUT_DEVICE float Weight(const RowTerm& term, int64_t id, float logit) const {
    if (term.weight == 0 || id >= matrix.num_classes) return 0;
    return expf(logit - term.log_partition) * term.weight;
  }

  // weights[passing, own] = probability times the weight of the example.
  LARGEOUT_DEVICE void WriteWeights(const TileSums<Shape>& logits, int64_t first, int64_t next,
                                    int thread, float* weights) const {
    const int row_group = Shape::RowGroup(thread), column_group = Shape::ColumnGroup(thread);
    constexpr int kTerms = kOwnClasses ? Shape::kTileColumns : Shape::kTileRows;
    RowTerm terms[kTerms];
    LARGEOUT_UNROLL
    for (int t = 0; t < kTerms; ++t) {
      terms[t] = TermOf(kOwnClasses ? next + Shape::Column(column_group, t)
                                    : first + Shape::Row(row_group, t));
    }
    LARGEOUT_UNROLL
    for (int j = 0; j < Shape::kTileColumns; ++j) {
      const int column = Shape::Column(column_group, j);
      LARGEOUT_UNROLL
      for (int i = 0; i < Shape::kTileRows; ++i) {
        const int row = Shape::Row(row_group, i);
        weights[column * kWeightStride + row] =
            Weight(terms[kOwnClasses ? j : i], kOwnClasses ? first + row : next + column,
                   logits.at[i][j]);
      }
    }
  }

  // Adds the weights of the labels in the tile. Each thread handles one example.
  LARGEOUT_DEVICE void AddLabels(int64_t first, int64_t next, int thread,
                                 float* weights) const {
    const int tile_rows = kOwnClasses ? Shape::kColumns : Shape::kRows;
    const int tile_classes = kOwnClasses ? Shape::kRows : Shape::kColumns;
    const int64_t row = (kOwnClasses ? next : first) + thread, width = batch.labels.width;
    const int64_t first_class = kOwnClasses ? first : next;
    if (thread >= tile_rows || row >= batch.features.batch) return;
    for (int64_t i = row * width; i < (row + 1) * width; ++i) {
      const int64_t place = batch.labels.ids[i] - first_class;
      if (place < 0 || place >= tile_classes || !batch.Weighs(i, matrix.num_classes)) continue;
      const int64_t at =
          kOwnClasses ? thread * kWeightStride + place : place * kWeightStride + thread;
      weights[at] += batch.weights.label_weights[i];
    }
  }

  LARGEOUT_DEVICE static float SumOfWeights(const float* weights, int row) {
    float sum = 0;
    if (row >= Shape::kRows) return sum;
    for (int s = 0; s < Shape::kColumns; ++s) sum += weights[s * kWeightStride + row];
    return sum;
  }
};

// Item i: adds up number i of d_features over the shards.
struct AddShardsBody {
  const float* parts;  // [shards, size]
  int64_t shards;
  int64_t size;
  float* sums;

  LARGEOUT_DEVICE void operator()(int64_t i) const {
    float sum = parts[i];
    LARGEOUT_UNROLL_BY(16)
    for (int64_t s = 1; s < shards; ++s) sum += parts[s * size + i];
    sums[i] = sum;
  }
};

// The tile shapes of both gradients, for large and for small batches.
template <int Together>
struct WideGradient {
  using Tile = TileShape<8, 4, 16, 16, Together>;  // 128 x 64
  using Out = TileShape<8, 8, 16, 16, Together>;
  using OfClasses = GradientBody<Tile, Out, true>;
  using OfRows = GradientBody<Tile, Out, false>;
};
template <int Together>
struct LowGradient {
  using OfClasses =
      GradientBody<TileShape<4, 4, 64, 4, Together>, TileShape<4, 8, 64, 4, Together>, true>;
  using OfRows =
      GradientBody<TileShape<4, 4, 4, 64, Together>, TileShape<4, 2, 4, 64, Together>, false>;
};

inline constexpr int64_t kLargestLowGradient = 48;

// Launches blocks that own classes and loop over the whole batch.
template <class Body>
ScanPlan PlanOfClasses(int64_t batch, int64_t num_classes) {
  return {num_classes, batch, CeilDiv(num_classes, Body::Shape::kRows), 1, batch};
}

template <class Body>
ScanPlan PlanOfRows(int64_t batch, int64_t num_classes) {
  return MakeScanPlan<typename Body::Shape>(batch, num_classes);
}

}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_CLASS_GRADIENT_BODY_H_
