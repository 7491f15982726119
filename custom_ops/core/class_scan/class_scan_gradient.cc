#include <algorithm>
#include <limits>
#include <memory>
#include <vector>

#include "custom_ops/core/base/rounding.h"
#include "custom_ops/core/base/simd_level.h"
#include "custom_ops/core/class_scan/class_scan.h"
#include "custom_ops/core/class_scan/class_scan_bfloat16.h"
#include "custom_ops/core/class_scan/class_scan_gradient_simd.h"
#include "custom_ops/core/class_scan/class_scan_panels.h"
#include "custom_ops/core/linear_algebra/dense_product_simd.h"

namespace largeout {
namespace {

// Each shard has its own sum of d_features. All sums together take at most this much memory,
// unless the resulting number of shards would leave processors idle.
constexpr int64_t kMostSumBytes = int64_t{1} << 28;

int64_t MostShards(int64_t batch, int64_t width) {
  const int64_t bytes = std::max<int64_t>(1, batch * width * sizeof(float));
  return std::clamp<int64_t>(kMostSumBytes / bytes, 8, 64);
}

// The batch in the form of the scan, without the ignored examples.
class GradientBatch {
 public:
  GradientBatch(const ClassMatrix& matrix, const Features& features, const float* log_partition,
                const float* weights, const Labels& labels, const float* label_weights,
                ProductNumbers numbers, const ParallelFor& parallel)
      : batch_(features.batch) {
    CollectLabels(labels, label_weights);
    std::vector<int64_t> order(batch_, -1);
    for (const LabelWeight& label : labels_) order[label.example] = label.example;
    for (int64_t b = 0; b < batch_; ++b) {
      if (weights[b] != 0.0f) order[b] = b;
    }
    if (numbers == ProductNumbers::kBfloat16) {
      pairs_ = std::make_unique<PairedFeatures>(features, matrix.dim, order, true, parallel);
      width_ = pairs_->panels().width;
    } else {
      width_ = RoundUp(matrix.dim, kWidthMultiple);
      packed_ = std::make_unique<PackedFeatures>(features, matrix.dim, order, parallel);
      PadFeatures(features, matrix.dim, order);
    }
    shift_.assign(padded_size(), std::numeric_limits<float>::infinity());
    weights_.assign(padded_size(), 0.0f);
    for (int64_t b = 0; b < batch_; ++b) {
      weights_[b] = weights[b];
      if (weights[b] != 0.0f) shift_[b] = log_partition[b];
    }
  }

  int64_t width() const { return width_; }
  // The number of examples, rounded up to whole panels.
  int64_t padded_size() const { return RoundUp(batch_, kPanelExamples); }
  // Either packed() or paired() is null.
  const PackedFeatures* packed() const { return packed_.get(); }
  const PairedFeatures* pairs() const { return pairs_.get(); }
  GradientExamples examples() const {
    return {features_ == nullptr ? nullptr : features_->get(),
            width_,
            shift_.data(),
            weights_.data(),
            labels_.data(),
            static_cast<int64_t>(labels_.size())};
  }

 private:
  void CollectLabels(const Labels& labels, const float* label_weights) {
    for (int64_t i = 0; i < batch_ * labels.width; ++i) {
      if (labels.ids[i] < 0 || label_weights[i] == 0.0f) continue;
      labels_.push_back({static_cast<int32_t>(labels.ids[i]),
                         static_cast<int32_t>(i / labels.width), label_weights[i]});
    }
    std::stable_sort(
        labels_.begin(), labels_.end(),
        [](const LabelWeight& a, const LabelWeight& b) { return a.class_id < b.class_id; });
  }

  void PadFeatures(const Features& features, int64_t dim, const std::vector<int64_t>& order) {
    features_ = std::make_unique<AlignedFloats>(batch_ * width_);
    std::fill_n(features_->get(), batch_ * width_, 0.0f);
    for (int64_t b = 0; b < batch_; ++b) {
      if (order[b] < 0) continue;
      std::copy_n(features.data + b * dim, dim, features_->get() + b * width_);
    }
  }

  const int64_t batch_;
  int64_t width_;
  std::unique_ptr<AlignedFloats> features_;
  std::unique_ptr<PackedFeatures> packed_;
  std::unique_ptr<PairedFeatures> pairs_;
  std::vector<float> shift_, weights_;
  std::vector<LabelWeight> labels_;
};

// The buffers of one thread.
class Scratch {
 public:
  explicit Scratch(const GradientBatch& batch)
      : batch_(batch),
        chunk_examples_(std::min<int64_t>(kChunkExamples, batch.padded_size())),
        block_gradient_(kBlockClasses * batch.width()) {
    if (batch.pairs() != nullptr) {
      pairs_ = std::make_unique<PairBuffers>(batch.width());
      gradient_pairs_ = std::make_unique<GradientPairBuffers>(batch.width(), chunk_examples_);
    } else {
      probabilities_ = std::make_unique<AlignedFloats>(kBlockClasses * stride());
      embeddings_ = std::make_unique<AlignedFloats>(kBlockClasses * batch.width());
    }
  }

  // Adds the contribution of the classes [begin, end) to `sum`, and writes their gradients.
  void Scan(const ClassMatrix& matrix, int64_t begin, int64_t end, float* sum,
            float* d_embeddings, float* d_bias) const {
    const bool of_pairs = batch_.pairs() != nullptr;
    const ShardGradient shard = {of_pairs ? nullptr : probabilities_->get(),
                                 stride(),
                                 of_pairs ? nullptr : embeddings_->get(),
                                 block_gradient_.get(),
                                 sum,
                                 d_embeddings,
                                 d_bias};
    if (of_pairs) {
      LARGEOUT_SIMD_DISPATCH(ScanPairGradient, matrix, batch_.pairs()->panels(),
                             batch_.examples(), begin, end, pairs_->scratch(),
                             gradient_pairs_->pairs(), shard);
    } else {
      LARGEOUT_SIMD_DISPATCH(ScanGradient, matrix, batch_.packed()->panels(), batch_.examples(),
                             begin, end, shard);
    }
  }

 private:
  // Not a power of 2: rows of probabilities would share cache sets.
  int64_t stride() const { return chunk_examples_ + kWidthMultiple; }

  const GradientBatch& batch_;
  const int64_t chunk_examples_;
  const AlignedFloats block_gradient_;
  std::unique_ptr<AlignedFloats> probabilities_, embeddings_;
  std::unique_ptr<PairBuffers> pairs_;
  std::unique_ptr<GradientPairBuffers> gradient_pairs_;
};

// d_features [batch, dim] = the sums [shards, examples, width], added in order.
void AddShards(const float* sums, int64_t num_shards, int64_t examples, int64_t batch,
               int64_t dim, int64_t width, const ParallelFor& parallel, float* d_features) {
  parallel(batch, num_shards * dim / 4, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      float* to = d_features + b * dim;
      std::copy_n(sums + b * width, dim, to);
      for (int64_t s = 1; s < num_shards; ++s) {
        const float* from = sums + (s * examples + b) * width;
        for (int64_t k = 0; k < dim; ++k) to[k] += from[k];
      }
    }
  });
}

}  // namespace

void ClassSoftmaxGradient(const ClassMatrix& matrix, const Features& features,
                          const float* log_partition, const float* weights,
                          const Labels& labels, const float* label_weights,
                          const ParallelFor& parallel, float* d_features, float* d_embeddings,
                          float* d_bias, ProductNumbers numbers) {
  const GradientBatch batch(matrix, features, log_partition, weights, labels, label_weights,
                            numbers, parallel);
  const int64_t width = batch.width(), num_examples = batch.padded_size();
  const ClassShards shards(matrix.num_classes, MostShards(num_examples, width));
  const AlignedFloats sums(shards.count() * num_examples * width);
  const int64_t cost = shards.size() * num_examples * (3 * width / 16 + 4);
  parallel(shards.count(), cost, [&](int64_t begin, int64_t end) {
    const Scratch scratch(batch);
    for (int64_t s = begin; s < end; ++s) {
      float* sum = sums.get() + s * num_examples * width;
      std::fill_n(sum, num_examples * width, 0.0f);
      scratch.Scan(matrix, shards.begin(s), shards.end(s), sum, d_embeddings, d_bias);
    }
  });
  AddShards(sums.get(), shards.count(), num_examples, features.batch, matrix.dim, width,
            parallel, d_features);
}

}  // namespace largeout
