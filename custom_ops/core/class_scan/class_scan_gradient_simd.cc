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
  ProbabilityConsumer(const GradientExamples& examples, const ShardGradient& shard,
                      int64_t first_class, int64_t first_example)
      : examples_(examples),
        shard_(shard),
        first_class_(first_class),
        first_example_(first_example) {}

  template <int T>
  inline __attribute__((always_inline)) void Logits(const float* logits, int64_t example,
                                                    int64_t first) {
    const Floats shift = Load(examples_.shift + example),
                 weights = Load(examples_.weights + example);
    float* to = shard_.probabilities + (first - first_class_) * shard_.probability_stride +
                example - first_example_;
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) {
      const Floats p = Exp(Load(logits + t * kPanelExamples) - shift) * weights;
      Store(p, to + t * shard_.probability_stride);
    }
  }

 private:
  const GradientExamples& examples_;
  const ShardGradient& shard_;
  const int64_t first_class_, first_example_;
};

// One block of classes [first, last) and all examples.
class BlockGradient {
 public:
  BlockGradient(const ClassMatrix& matrix, const Panels& panels,
                const GradientExamples& examples, const ShardGradient& shard, int64_t first,
                int64_t last)
      : matrix_(matrix),
        panels_(panels),
        examples_(examples),
        shard_(shard),
        first_(first),
        size_(last - first) {}

  // `label` is the first label of the block.
  void Run(int64_t label) {
    PadEmbeddings();
    ZeroFloats(shard_.block_gradient, size_ * examples_.width);
    if (shard_.d_bias != nullptr) ZeroFloats(shard_.d_bias + first_, size_);
    for (int64_t example = 0; example < panels_.num_examples; example += kChunkExamples) {
      const int64_t left = panels_.num_examples - example;
      AddChunk(label, example, left < kChunkExamples ? left : kChunkExamples);
    }
    for (int64_t c = 0; c < size_; ++c) {
      CopyFloats(shard_.block_gradient + c * examples_.width, matrix_.dim,
                 shard_.d_embeddings + (first_ + c) * matrix_.dim);
    }
  }

 private:
  // Pads the rows of the block to whole vectors, if necessary.
  void PadEmbeddings() {
    embeddings_ = matrix_.embeddings + first_ * matrix_.dim;
    if (matrix_.dim == examples_.width) return;
    ZeroFloats(shard_.embeddings, size_ * examples_.width);
    for (int64_t c = 0; c < size_; ++c) {
      CopyFloats(embeddings_ + c * matrix_.dim, matrix_.dim,
                 shard_.embeddings + c * examples_.width);
    }
    embeddings_ = shard_.embeddings;
  }

  void AddChunk(int64_t label, int64_t first_example, int64_t num_examples) {
    ProbabilityConsumer use(examples_, shard_, first_, first_example);
    for (int64_t r = 0; r < num_examples; r += kPanelExamples) {
      ScanPanel(matrix_, panels_, (first_example + r) / kPanelExamples, first_, first_ + size_,
                use);
    }
    AddLabels(label, first_example, num_examples);
    if (shard_.d_bias != nullptr) AddBias(num_examples);
    const int64_t width = examples_.width, stride = shard_.probability_stride;
    const Strided<float> by_class = {shard_.probabilities, stride, 1};
    const Strided<float> by_example = {shard_.probabilities, 1, stride};
    AddProduct({size_, num_examples, width}, by_class,
               examples_.features + first_example * width, width, shard_.block_gradient, width);
    AddProduct({num_examples, size_, width}, by_example, embeddings_, width,
               shard_.d_features + first_example * width, width);
  }

  void AddLabels(int64_t label, int64_t first_example, int64_t num_examples) {
    for (; label < examples_.num_labels && examples_.labels[label].class_id < first_ + size_;
         ++label) {
      const LabelWeight& at = examples_.labels[label];
      if (at.example < first_example || at.example >= first_example + num_examples) continue;
      shard_.probabilities[(at.class_id - first_) * shard_.probability_stride + at.example -
                           first_example] += at.weight;
    }
  }

  void AddBias(int64_t num_examples) {
    for (int64_t c = 0; c < size_; ++c) {
      const float* p = shard_.probabilities + c * shard_.probability_stride;
      Floats sums{};
      int64_t r = 0;
      for (; r + kLanes <= num_examples; r += kLanes) sums += Load(p + r);
      float sum = 0.0f;
      for (int lane = 0; lane < kLanes; ++lane) sum += sums[lane];
      for (; r < num_examples; ++r) sum += p[r];
      shard_.d_bias[first_ + c] += sum;
    }
  }

  const ClassMatrix& matrix_;
  const Panels& panels_;
  const GradientExamples& examples_;
  const ShardGradient& shard_;
  const int64_t first_, size_;
  const float* embeddings_ = nullptr;
};

}  // namespace

void ScanGradient(const ClassMatrix& matrix, const Panels& panels,
                  const GradientExamples& examples, int64_t begin, int64_t end,
                  const ShardGradient& shard) {
  int64_t label = 0;
  for (int64_t first = begin; first < end; first += kBlockClasses) {
    const int64_t last = first + kBlockClasses < end ? first + kBlockClasses : end;
    while (label < examples.num_labels && examples.labels[label].class_id < first) ++label;
    BlockGradient(matrix, panels, examples, shard, first, last).Run(label);
  }
}

}  // namespace LARGEOUT_SIMD
}  // namespace largeout
