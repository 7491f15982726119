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
    const int64_t left = panels_.num_examples - panel * kPanelExamples;
    const int64_t examples = left < kPanelExamples ? UpTo(left, kPairTile) : kPanelExamples;
    for (int64_t c = 0; c < padded_size(); ++c) {
      const float bias = matrix_.bias != nullptr && c < size_ ? matrix_.bias[first_ + c] : 0.0f;
      float* to = scratch_.logits + c * kPanelExamples;
      for (int64_t r = 0; r < examples; r += kLanes) Store(Broadcast(bias), to + r);
    }
    const int64_t stride = panels_.width / 2;
    panels_.product({padded_size(), panels_.width, examples}, {scratch_.rows, stride},
                    {panels_.data + panel * stride * kPanelExamples, kPanelExamples},
                    scratch_.logits, kPanelExamples);
    return examples;
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
void ConsumeLogits(const float* logits, int64_t panel, int64_t examples, int64_t first,
                   int64_t size, Consumer& use) {
  int64_t c = 0;
  for (; c + kTileRows <= size; c += kTileRows) {
    for (int64_t r = 0; r < examples; r += kLanes) {
      use.template Logits<kTileRows>(logits + c * kPanelExamples + r,
                                     panel * kPanelExamples + r, first + c);
    }
  }
  for (; c < size; ++c) {
    for (int64_t r = 0; r < examples; r += kLanes) {
      use.template Logits<1>(logits + c * kPanelExamples + r, panel * kPanelExamples + r,
                             first + c);
    }
  }
}

// The gradient of one block of classes for all examples.
class PairBlockGradient {
 public:
  PairBlockGradient(const ClassMatrix& matrix, const PairPanels& panels,
                    const GradientExamples& examples, const PairScratch& scratch,
                    const GradientPairs& pairs, const ShardGradient& shard, int64_t first,
                    int64_t last)
      : matrix_(matrix),
        panels_(panels),
        examples_(examples),
        scratch_(scratch),
        pairs_(pairs),
        shard_(shard),
        first_(first),
        size_(last - first) {}

  // `label` is the first label of the block.
  void Run(int64_t label) {
    ZeroFloats(shard_.block_gradient, size_ * examples_.width);
    if (shard_.d_bias != nullptr) ZeroFloats(shard_.d_bias + first_, size_);
    AddPanels(label);
    for (int64_t c = 0; c < size_; ++c) {
      CopyFloats(shard_.block_gradient + c * examples_.width, matrix_.dim,
                 shard_.d_embeddings + (first_ + c) * matrix_.dim);
    }
  }

 private:
  void AddPanels(int64_t label) {
    const PairBlock block(matrix_, panels_, scratch_, first_, first_ + size_);
    const int64_t padded = block.padded_size(), width = examples_.width;
    for (int64_t c = 0; c < padded; c += 2) {
      PairRows(Embedding(c), Embedding(c + 1), matrix_.dim, width,
               pairs_.by_classes + c / 2 * width);
    }
    constexpr int64_t kMostPanels = kChunkExamples / kPanelExamples;
    for (int64_t first = 0; first < panels_.num_panels; first += kMostPanels) {
      const int64_t left = panels_.num_panels - first;
      const int64_t count = left < kMostPanels ? left : kMostPanels;
      for (int64_t p = 0; p < count; ++p) {
        const int64_t panel = first + p;
        FindProbabilities(block.FindLogits(panel), panel, label);
        PackProbabilities(padded, p);
        panels_.product({kPanelExamples, padded, width},
                        {pairs_.of_examples, kBlockClasses / 2}, {pairs_.by_classes, width},
                        shard_.d_features + panel * kPanelExamples * width, width);
      }
      panels_.product({padded, count * kPanelExamples, width},
                      {pairs_.of_classes, pairs_.class_stride},
                      {panels_.by_examples + first * kPanelExamples / 2 * width, width},
                      shard_.block_gradient, width);
    }
  }

  const float* Embedding(int64_t c) const {
    return c < size_ ? matrix_.embeddings + (first_ + c) * matrix_.dim : nullptr;
  }

  // Converts the logits into weighted probabilities and subtracts the labels; 0 outside of the
  // matrix.
  void FindProbabilities(int64_t examples, int64_t panel, int64_t label) {
    const float* shift = examples_.shift + panel * kPanelExamples;
    const float* weights = examples_.weights + panel * kPanelExamples;
    for (int64_t c = 0; c < size_; ++c) {
      float* p = scratch_.logits + c * kPanelExamples;
      for (int64_t r = 0; r < examples; r += kLanes) {
        Store(Exp(Load(p + r) - Load(shift + r)) * Load(weights + r), p + r);
      }
      ZeroFloats(p + examples, kPanelExamples - examples);
    }
    ZeroFloats(scratch_.logits + size_ * kPanelExamples,
               (kBlockClasses - size_) * kPanelExamples);
    for (; label < examples_.num_labels && examples_.labels[label].class_id < first_ + size_;
         ++label) {
      const LabelWeight& at = examples_.labels[label];
      if (at.example / kPanelExamples != panel) continue;
      scratch_.logits[(at.class_id - first_) * kPanelExamples + at.example % kPanelExamples] +=
          at.weight;
    }
    if (shard_.d_bias != nullptr) AddBias();
  }

  void AddBias() {
    for (int64_t c = 0; c < size_; ++c) {
      Floats sums{};
      for (int64_t r = 0; r < kPanelExamples; r += kLanes) {
        sums += Load(scratch_.logits + c * kPanelExamples + r);
      }
      shard_.d_bias[first_ + c] += SumLanes(sums);
    }
  }

  // Packs the probabilities of panel p of the chunk twice: with the examples in pairs, and with
  // the classes in pairs.
  void PackProbabilities(int64_t padded, int64_t p) {
    for (int64_t c = 0; c < padded; ++c) {
      PackRow(scratch_.logits + c * kPanelExamples, kPanelExamples, kPanelExamples,
              pairs_.of_classes + c * pairs_.class_stride + p * kPanelExamples / 2);
    }
    for (int64_t c = 0; c < padded; c += 2) {
      const float* even = scratch_.logits + c * kPanelExamples;
      PairRows(even, even + kPanelExamples, kPanelExamples, kPanelExamples,
               pairs_.by_class_pairs + c / 2 * kPanelExamples);
    }
    for (int64_t c = 0; c < padded / 2; c += kPairTile) {
      for (int64_t r = 0; r < kPanelExamples; r += kPairTile) {
        TransposeTile(pairs_.by_class_pairs + c * kPanelExamples + r, kPanelExamples,
                      pairs_.of_examples + r * (kBlockClasses / 2) + c, kBlockClasses / 2);
      }
    }
  }

  const ClassMatrix& matrix_;
  const PairPanels& panels_;
  const GradientExamples& examples_;
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
      const int64_t examples = block.FindLogits(panel);
      ConsumeLogits(scratch.logits, panel, examples, first, last - first, use);
      use.EndPanel(panel);
    }
  }
}

void OnePairLogit(const ClassMatrix& matrix, const PairPanels& panels, int64_t example,
                  int64_t class_id, const PairScratch& scratch, float* logit) {
  const int64_t stride = panels.width / 2,
                first = example % kPanelExamples / kPairTile * kPairTile;
  PackRow(matrix.embeddings + class_id * matrix.dim, matrix.dim, panels.width, scratch.rows);
  std::memset(scratch.rows + stride, 0, (kPairTile - 1) * stride * sizeof(Pair));
  ZeroFloats(scratch.logits, kPairTile * kPanelExamples);
  for (int i = 0; i < kPairTile && matrix.bias != nullptr; ++i) {
    scratch.logits[i] = matrix.bias[class_id];
  }
  panels.product({kPairTile, panels.width, kPairTile}, {scratch.rows, stride},
                 {panels.data + example / kPanelExamples * stride * kPanelExamples + first,
                  kPanelExamples},
                 scratch.logits, kPanelExamples);
  *logit = scratch.logits[example % kPairTile];
}

void ScanPairGradient(const ClassMatrix& matrix, const PairPanels& panels,
                      const GradientExamples& examples, int64_t begin, int64_t end,
                      const PairScratch& scratch, const GradientPairs& pairs,
                      const ShardGradient& shard) {
  int64_t label = 0;
  for (int64_t first = begin; first < end; first += kBlockClasses) {
    const int64_t last = first + kBlockClasses < end ? first + kBlockClasses : end;
    while (label < examples.num_labels && examples.labels[label].class_id < first) ++label;
    PairBlockGradient(matrix, panels, examples, scratch, pairs, shard, first, last).Run(label);
  }
}

}  // namespace LARGEOUT_SIMD
}  // namespace largeout
