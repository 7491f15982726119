#include <algorithm>
#include <limits>
#include <memory>
#include <vector>

#include "custom_ops/core/class_scan.h"
#include "custom_ops/core/class_scan_gradient_simd.h"
#include "custom_ops/core/class_scan_panels.h"
#include "custom_ops/core/dense_product_simd.h"
#include "custom_ops/core/rounding.h"
#include "custom_ops/core/simd_level.h"

namespace largeout {
namespace {

// Each shard has its own sum of d_features; together they take at most this,
// unless so few shards would leave processors idle.
constexpr int64_t kMostSumBytes = int64_t{1} << 28;

int64_t MostShards(int64_t batch, int64_t width) {
  const int64_t bytes = std::max<int64_t>(1, batch * width * sizeof(float));
  return std::clamp<int64_t>(kMostSumBytes / bytes, 8, 64);
}

// The batch in the form of the scan, without the rows that take no part.
class GradientBatch {
 public:
  GradientBatch(const Features& features, int64_t dim, const float* log_partition,
                const float* weights, const Labels& labels, const float* label_weights,
                const ParallelFor& parallel)
      : width_(RoundUp(dim, kWidthMultiple)), features_(features.batch * width_) {
    CollectLabels(labels, label_weights, features.batch);
    std::vector<int64_t> order(features.batch, -1);
    for (const LabelWeight& label : labels_) order[label.row] = label.row;
    for (int64_t b = 0; b < features.batch; ++b) {
      if (weights[b] != 0.0f) order[b] = b;
    }
    PadFeatures(features, dim, order);
    packed_ = std::make_unique<PackedFeatures>(features, dim, order, parallel);
    shift_.assign(packed_->num_rows(), std::numeric_limits<float>::infinity());
    weights_.assign(packed_->num_rows(), 0.0f);
    for (int64_t b = 0; b < features.batch; ++b) {
      weights_[b] = weights[b];
      if (weights[b] != 0.0f) shift_[b] = log_partition[b];
    }
  }

  int64_t width() const { return width_; }
  const Panels& panels() const { return packed_->panels(); }
  GradientRows rows() const {
    return {features_.get(), width_,         shift_.data(),
            weights_.data(), labels_.data(), static_cast<int64_t>(labels_.size())};
  }

 private:
  void CollectLabels(const Labels& labels, const float* label_weights, int64_t batch) {
    for (int64_t i = 0; i < batch * labels.width; ++i) {
      if (labels.ids[i] < 0 || label_weights[i] == 0.0f) continue;
      labels_.push_back({static_cast<int32_t>(labels.ids[i]),
                         static_cast<int32_t>(i / labels.width), label_weights[i]});
    }
    std::stable_sort(
        labels_.begin(), labels_.end(),
        [](const LabelWeight& a, const LabelWeight& b) { return a.class_id < b.class_id; });
  }

  void PadFeatures(const Features& features, int64_t dim, const std::vector<int64_t>& order) {
    std::fill_n(features_.get(), features.batch * width_, 0.0f);
    for (int64_t b = 0; b < features.batch; ++b) {
      if (order[b] < 0) continue;
      std::copy_n(features.data + b * dim, dim, features_.get() + b * width_);
    }
  }

  const int64_t width_;
  AlignedFloats features_;
  std::unique_ptr<PackedFeatures> packed_;
  std::vector<float> shift_, weights_;
  std::vector<LabelWeight> labels_;
};

// The buffers of one thread.
class Scratch {
 public:
  Scratch(int64_t batch, int64_t width)
      : stride_(std::min<int64_t>(kChunkRows, RoundUp(batch, kPanelRows)) +
                kWidthMultiple),  // no power of 2: its rows would share cache sets
        probabilities_(kBlockClasses * stride_),
        embeddings_(kBlockClasses * width),
        block_gradient_(kBlockClasses * width) {}

  ShardGradient Shard(float* d_features, float* d_embeddings, float* d_bias) const {
    return {probabilities_.get(), stride_, embeddings_.get(), block_gradient_.get(), d_features,
            d_embeddings,         d_bias};
  }

 private:
  const int64_t stride_;
  AlignedFloats probabilities_, embeddings_, block_gradient_;
};

// d_features [batch, dim] = the sums [shards, batch, width] added in order.
void AddShards(const float* sums, int64_t num_shards, int64_t batch, int64_t dim, int64_t width,
               const ParallelFor& parallel, float* d_features) {
  parallel(batch, num_shards * dim / 4, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      float* to = d_features + b * dim;
      std::copy_n(sums + b * width, dim, to);
      for (int64_t s = 1; s < num_shards; ++s) {
        const float* from = sums + (s * batch + b) * width;
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
                          float* d_bias) {
  const int64_t batch = features.batch;
  const GradientBatch rows(features, matrix.dim, log_partition, weights, labels, label_weights,
                           parallel);
  const int64_t width = rows.width();
  const ClassShards shards(matrix.num_classes, MostShards(batch, width));
  const AlignedFloats sums(shards.count() * batch * width);
  const int64_t cost = shards.size() * batch * (3 * width / 16 + 4);
  parallel(shards.count(), cost, [&](int64_t begin, int64_t end) {
    const Scratch scratch(batch, width);
    for (int64_t s = begin; s < end; ++s) {
      float* sum = sums.get() + s * batch * width;
      std::fill_n(sum, batch * width, 0.0f);
      LARGEOUT_SIMD_DISPATCH(ScanGradient, matrix, rows.panels(), rows.rows(), shards.begin(s),
                             shards.end(s), scratch.Shard(sum, d_embeddings, d_bias));
    }
  });
  AddShards(sums.get(), shards.count(), batch, matrix.dim, width, parallel, d_features);
}

}  // namespace largeout
