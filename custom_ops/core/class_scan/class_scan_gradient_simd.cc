#include "custom_ops/core/class_scan/class_scan_gradient_simd.h"

#include "custom_ops/core/base/simd.h"
#include "custom_ops/core/class_scan/class_scan_tile.h"
#include "custom_ops/core/linear_algebra/dense_product_simd.h"

namespace largeout {
namespace LARGEOUT_SIMD {
namespace {

// Converts logits into weighted probabilities [classes of a block, examples of a chunk].
class ProbabilityConsumer {
 public:
  ProbabilityConsumer(const GradientRows& rows, const ShardGradient& shard, int64_t first_class,
                      int64_t first_row)
      : rows_(rows), shard_(shard), first_class_(first_class), first_row_(first_row) {}

  template <int T>
  inline __attribute__((always_inline)) void Logits(const float* logits, int64_t row,
                                                    int64_t first) {
    const Floats shift = Load(rows_.shift + row), weights = Load(rows_.weights + row);
    float* to = shard_.probabilities + (first - first_class_) * shard_.probability_stride +
                row - first_row_;
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) {
      const Floats p = Exp(Load(logits + t * kPanelRows) - shift) * weights;
      Store(p, to + t * shard_.probability_stride);
    }
  }

 private:
  const GradientRows& rows_;
  const ShardGradient& shard_;
  const int64_t first_class_, first_row_;
};

// One block of classes [first, last) and all examples.
class BlockGradient {
 public:
  BlockGradient(const ClassMatrix& matrix, const Panels& panels, const GradientRows& rows,
                const ShardGradient& shard, int64_t first, int64_t last)
      : matrix_(matrix),
        panels_(panels),
        rows_(rows),
        shard_(shard),
        first_(first),
        size_(last - first) {}

  // `label` is the first label of the block.
  void Run(int64_t label) {
    PadEmbeddings();
    ZeroFloats(shard_.block_gradient, size_ * rows_.width);
    if (shard_.d_bias != nullptr) ZeroFloats(shard_.d_bias + first_, size_);
    for (int64_t row = 0; row < panels_.num_rows; row += kChunkRows) {
      const int64_t left = panels_.num_rows - row;
      AddChunk(label, row, left < kChunkRows ? left : kChunkRows);
    }
    for (int64_t c = 0; c < size_; ++c) {
      CopyFloats(shard_.block_gradient + c * rows_.width, matrix_.dim,
                 shard_.d_embeddings + (first_ + c) * matrix_.dim);
    }
  }

 private:
  // Pads the rows of the block to whole vectors, if necessary.
  void PadEmbeddings() {
    embeddings_ = matrix_.embeddings + first_ * matrix_.dim;
    if (matrix_.dim == rows_.width) return;
    ZeroFloats(shard_.embeddings, size_ * rows_.width);
    for (int64_t c = 0; c < size_; ++c) {
      CopyFloats(embeddings_ + c * matrix_.dim, matrix_.dim,
                 shard_.embeddings + c * rows_.width);
    }
    embeddings_ = shard_.embeddings;
  }

  void AddChunk(int64_t label, int64_t first_row, int64_t num_rows) {
    ProbabilityConsumer use(rows_, shard_, first_, first_row);
    for (int64_t r = 0; r < num_rows; r += kPanelRows) {
      ScanPanel(matrix_, panels_, (first_row + r) / kPanelRows, first_, first_ + size_, use);
    }
    AddLabels(label, first_row, num_rows);
    if (shard_.d_bias != nullptr) AddBias(num_rows);
    const int64_t width = rows_.width, stride = shard_.probability_stride;
    const Strided<float> by_class = {shard_.probabilities, stride, 1};
    const Strided<float> by_row = {shard_.probabilities, 1, stride};
    AddProduct({size_, num_rows, width}, by_class, rows_.features + first_row * width, width,
               shard_.block_gradient, width);
    AddProduct({num_rows, size_, width}, by_row, embeddings_, width,
               shard_.d_features + first_row * width, width);
  }

  void AddLabels(int64_t label, int64_t first_row, int64_t num_rows) {
    for (; label < rows_.num_labels && rows_.labels[label].class_id < first_ + size_; ++label) {
      const LabelWeight& at = rows_.labels[label];
      if (at.row < first_row || at.row >= first_row + num_rows) continue;
      shard_.probabilities[(at.class_id - first_) * shard_.probability_stride + at.row -
                           first_row] += at.weight;
    }
  }

  void AddBias(int64_t num_rows) {
    for (int64_t c = 0; c < size_; ++c) {
      const float* p = shard_.probabilities + c * shard_.probability_stride;
      Floats sums{};
      int64_t r = 0;
      for (; r + kLanes <= num_rows; r += kLanes) sums += Load(p + r);
      float sum = 0.0f;
      for (int lane = 0; lane < kLanes; ++lane) sum += sums[lane];
      for (; r < num_rows; ++r) sum += p[r];
      shard_.d_bias[first_ + c] += sum;
    }
  }

  const ClassMatrix& matrix_;
  const Panels& panels_;
  const GradientRows& rows_;
  const ShardGradient& shard_;
  const int64_t first_, size_;
  const float* embeddings_ = nullptr;
};

}  // namespace

void ScanGradient(const ClassMatrix& matrix, const Panels& panels, const GradientRows& rows,
                  int64_t begin, int64_t end, const ShardGradient& shard) {
  int64_t label = 0;
  for (int64_t first = begin; first < end; first += kBlockClasses) {
    const int64_t last = first + kBlockClasses < end ? first + kBlockClasses : end;
    while (label < rows.num_labels && rows.labels[label].class_id < first) ++label;
    BlockGradient(matrix, panels, rows, shard, first, last).Run(label);
  }
}

}  // namespace LARGEOUT_SIMD
}  // namespace largeout
