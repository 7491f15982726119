#include "custom_ops/core/class_scan/class_scan_bfloat16_simd.h"

#include "custom_ops/core/base/simd.h"
#include "custom_ops/core/class_scan/class_scan_statistics.h"
#include "custom_ops/core/linear_algebra/bfloat16_pairs.h"

namespace largeout {
namespace LARGEOUT_SIMD {
namespace {

inline int64_t UpTo(int64_t size, int64_t multiple) {
  return (size + multiple - 1) / multiple * multiple;
}

// A block of classes [first, last), rounded to bfloat16.
class PairBlock {
 public:
  PairBlock(const ClassMatrix& matrix, const PairPanels& panels, const PairScratch& scratch,
            int64_t first, int64_t last)
      : matrix_(matrix),
        panels_(panels),
        scratch_(scratch),
        first_(first),
        size_(last - first) {
    const int64_t stride = panels.width / 2;
    for (int64_t c = 0; c < padded_size(); ++c) {
      const int64_t dim = c < size_ ? matrix.dim : 0;
      PackRow(matrix.embeddings + (first + c) * matrix.dim, dim, panels.width,
              scratch.rows + c * stride);
    }
  }

  // The number of classes, rounded up to a multiple that products accept as rows and as depth.
  // The padding is zeros.
  int64_t padded_size() const { return UpTo(size_, kPairDepth); }

  // Computes scratch.logits of the examples of a panel. Returns their number, rounded up to
  // whole tiles.
  int64_t FindLogits(int64_t panel) const {
    const int64_t left = panels_.num_rows - panel * kPanelRows;
    const int64_t rows = left < kPanelRows ? UpTo(left, kPairTile) : kPanelRows;
    for (int64_t c = 0; c < padded_size(); ++c) {
      const float bias = matrix_.bias != nullptr && c < size_ ? matrix_.bias[first_ + c] : 0.0f;
      float* to = scratch_.logits + c * kPanelRows;
      for (int64_t r = 0; r < rows; r += kLanes) Store(Broadcast(bias), to + r);
    }
    const int64_t stride = panels_.width / 2;
    panels_.product({padded_size(), panels_.width, rows}, {scratch_.rows, stride},
                    {panels_.data + panel * stride * kPanelRows, kPanelRows}, scratch_.logits,
                    kPanelRows);
    return rows;
  }

 private:
  const ClassMatrix& matrix_;
  const PairPanels& panels_;
  const PairScratch& scratch_;
  const int64_t first_, size_;
};

// Passes the logits of `size` classes, starting at `first`, for the examples of a panel to
// `use`.
template <class Consumer>
void ConsumeLogits(const float* logits, int64_t panel, int64_t rows, int64_t first,
                   int64_t size, Consumer& use) {
  int64_t c = 0;
  for (; c + kTileRows <= size; c += kTileRows) {
    for (int64_t r = 0; r < rows; r += kLanes) {
      use.template Logits<kTileRows>(logits + c * kPanelRows + r, panel * kPanelRows + r,
                                     first + c);
    }
  }
  for (; c < size; ++c) {
    for (int64_t r = 0; r < rows; r += kLanes) {
      use.template Logits<1>(logits + c * kPanelRows + r, panel * kPanelRows + r, first + c);
    }
  }
}

// The gradient of one block of classes for all examples.
class PairBlockGradient {
 public:
  PairBlockGradient(const ClassMatrix& matrix, const PairPanels& panels,
                    const GradientRows& rows, const PairScratch& scratch,
                    const GradientPairs& pairs, const ShardGradient& shard, int64_t first,
                    int64_t last)
      : matrix_(matrix),
        panels_(panels),
        rows_(rows),
        scratch_(scratch),
        pairs_(pairs),
        shard_(shard),
        first_(first),
        size_(last - first) {}

  // `label` is the first label of the block.
  void Run(int64_t label) {
    ZeroFloats(shard_.block_gradient, size_ * rows_.width);
    if (shard_.d_bias != nullptr) ZeroFloats(shard_.d_bias + first_, size_);
    AddPanels(label);
    for (int64_t c = 0; c < size_; ++c) {
      CopyFloats(shard_.block_gradient + c * rows_.width, matrix_.dim,
                 shard_.d_embeddings + (first_ + c) * matrix_.dim);
    }
  }

 private:
  void AddPanels(int64_t label) {
    const PairBlock block(matrix_, panels_, scratch_, first_, first_ + size_);
    const int64_t padded = block.padded_size(), width = rows_.width;
    for (int64_t c = 0; c < padded; c += 2) {
      PairRows(Embedding(c), Embedding(c + 1), matrix_.dim, width,
               pairs_.by_classes + c / 2 * width);
    }
    constexpr int64_t kMostPanels = kChunkRows / kPanelRows;
    for (int64_t first = 0; first < panels_.num_panels; first += kMostPanels) {
      const int64_t left = panels_.num_panels - first;
      const int64_t count = left < kMostPanels ? left : kMostPanels;
      for (int64_t p = 0; p < count; ++p) {
        const int64_t panel = first + p;
        FindProbabilities(block.FindLogits(panel), panel, label);
        PackProbabilities(padded, p);
        panels_.product({kPanelRows, padded, width}, {pairs_.of_rows, kBlockClasses / 2},
                        {pairs_.by_classes, width},
                        shard_.d_features + panel * kPanelRows * width, width);
      }
      panels_.product({padded, count * kPanelRows, width},
                      {pairs_.of_classes, pairs_.class_stride},
                      {panels_.by_rows + first * kPanelRows / 2 * width, width},
                      shard_.block_gradient, width);
    }
  }

  const float* Embedding(int64_t c) const {
    return c < size_ ? matrix_.embeddings + (first_ + c) * matrix_.dim : nullptr;
  }

  // Converts the logits into weighted probabilities and subtracts the labels; 0 outside of the
  // matrix.
  void FindProbabilities(int64_t rows, int64_t panel, int64_t label) {
    const float* shift = rows_.shift + panel * kPanelRows;
    const float* weights = rows_.weights + panel * kPanelRows;
    for (int64_t c = 0; c < size_; ++c) {
      float* p = scratch_.logits + c * kPanelRows;
      for (int64_t r = 0; r < rows; r += kLanes) {
        Store(Exp(Load(p + r) - Load(shift + r)) * Load(weights + r), p + r);
      }
      ZeroFloats(p + rows, kPanelRows - rows);
    }
    ZeroFloats(scratch_.logits + size_ * kPanelRows, (kBlockClasses - size_) * kPanelRows);
    for (; label < rows_.num_labels && rows_.labels[label].class_id < first_ + size_; ++label) {
      const LabelWeight& at = rows_.labels[label];
      if (at.row / kPanelRows != panel) continue;
      scratch_.logits[(at.class_id - first_) * kPanelRows + at.row % kPanelRows] += at.weight;
    }
    if (shard_.d_bias != nullptr) AddBias();
  }

  void AddBias() {
    for (int64_t c = 0; c < size_; ++c) {
      Floats sums{};
      for (int64_t r = 0; r < kPanelRows; r += kLanes) {
        sums += Load(scratch_.logits + c * kPanelRows + r);
      }
      shard_.d_bias[first_ + c] += SumLanes(sums);
    }
  }

  // Packs the probabilities of panel p of the chunk twice: with the examples in pairs, and with
  // the classes in pairs.
  void PackProbabilities(int64_t padded, int64_t p) {
    for (int64_t c = 0; c < padded; ++c) {
      PackRow(scratch_.logits + c * kPanelRows, kPanelRows, kPanelRows,
              pairs_.of_classes + c * pairs_.class_stride + p * kPanelRows / 2);
    }
    for (int64_t c = 0; c < padded; c += 2) {
      const float* even = scratch_.logits + c * kPanelRows;
      PairRows(even, even + kPanelRows, kPanelRows, kPanelRows,
               pairs_.by_class_pairs + c / 2 * kPanelRows);
    }
    for (int64_t c = 0; c < padded / 2; c += kPairTile) {
      for (int64_t r = 0; r < kPanelRows; r += kPairTile) {
        TransposeTile(pairs_.by_class_pairs + c * kPanelRows + r, kPanelRows,
                      pairs_.of_rows + r * (kBlockClasses / 2) + c, kBlockClasses / 2);
      }
    }
  }

  const ClassMatrix& matrix_;
  const PairPanels& panels_;
  const GradientRows& rows_;
  const PairScratch& scratch_;
  const GradientPairs& pairs_;
  const ShardGradient& shard_;
  const int64_t first_, size_;
};

}  // namespace

void ScanPairStatistics(const ClassMatrix& matrix, const PairPanels& panels,
                        const RankSlots& slots, int64_t begin, int64_t end,
                        const PairScratch& scratch, const ShardStatistics& shard) {
  StatisticsConsumer use(slots, shard);
  for (int64_t first = begin; first < end; first += kBlockClasses) {
    const int64_t last = first + kBlockClasses < end ? first + kBlockClasses : end;
    const PairBlock block(matrix, panels, scratch, first, last);
    for (int64_t panel = 0; panel < panels.num_panels; ++panel) {
      use.BeginPanel(panel, first, last);
      const int64_t rows = block.FindLogits(panel);
      ConsumeLogits(scratch.logits, panel, rows, first, last - first, use);
      use.EndPanel(panel);
    }
  }
}

void OnePairLogit(const ClassMatrix& matrix, const PairPanels& panels, int64_t row,
                  int64_t class_id, const PairScratch& scratch, float* logit) {
  const int64_t stride = panels.width / 2, first = row % kPanelRows / kPairTile * kPairTile;
  PackRow(matrix.embeddings + class_id * matrix.dim, matrix.dim, panels.width, scratch.rows);
  std::memset(scratch.rows + stride, 0, (kPairTile - 1) * stride * sizeof(Pair));
  ZeroFloats(scratch.logits, kPairTile * kPanelRows);
  for (int i = 0; i < kPairTile && matrix.bias != nullptr; ++i) {
    scratch.logits[i] = matrix.bias[class_id];
  }
  panels.product({kPairTile, panels.width, kPairTile}, {scratch.rows, stride},
                 {panels.data + row / kPanelRows * stride * kPanelRows + first, kPanelRows},
                 scratch.logits, kPanelRows);
  *logit = scratch.logits[row % kPairTile];
}

void ScanPairGradient(const ClassMatrix& matrix, const PairPanels& panels,
                      const GradientRows& rows, int64_t begin, int64_t end,
                      const PairScratch& scratch, const GradientPairs& pairs,
                      const ShardGradient& shard) {
  int64_t label = 0;
  for (int64_t first = begin; first < end; first += kBlockClasses) {
    const int64_t last = first + kBlockClasses < end ? first + kBlockClasses : end;
    while (label < rows.num_labels && rows.labels[label].class_id < first) ++label;
    PairBlockGradient(matrix, panels, rows, scratch, pairs, shard, first, last).Run(label);
  }
}

}  // namespace LARGEOUT_SIMD
}  // namespace largeout
