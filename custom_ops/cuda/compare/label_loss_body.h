// The sampled softmax loss of each row, from its label's logit and the log partition of its
// negatives. In the op library TensorFlow's own operations do this.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_COMPARE_LABEL_LOSS_BODY_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_COMPARE_LABEL_LOSS_BODY_H_

#include <cmath>
#include <cstdint>

#include "custom_ops/cuda/block.h"

namespace largeout {
namespace cuda {

// Item b, with t = true_logits[b] + true_offsets[b]: losses[b] = log(1 + exp(log_partition[b]
// - t)), and the gradients of the mean of all losses.
struct LabelLossBody {
  const float* true_logits;    // [batch]
  const float* true_offsets;   // [batch]
  const float* log_partition;  // [batch], the lowest float where there are no negatives
  int64_t batch;
  float* losses;           // [batch]
  float* d_true_logits;    // [batch]
  float* d_log_partition;  // [batch]

  LARGEOUT_DEVICE void operator()(int64_t b) const {
    const float gap = log_partition[b] - (true_logits[b] + true_offsets[b]);
    const float small = expf(-fabsf(gap));
    losses[b] = fmaxf(gap, 0.0f) + log1pf(small);
    const float share = (gap > 0 ? 1.0f : small) / (1.0f + small);  // of the negatives
    d_log_partition[b] = share / static_cast<float>(batch);
    d_true_logits[b] = -d_log_partition[b];
  }
};

}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_COMPARE_LABEL_LOSS_BODY_H_
