#include "custom_ops/cuda/compare/label_loss_body.h"

#include <cmath>
#include <limits>
#include <vector>

#include "custom_ops/core/testing.h"

namespace largeout {
namespace cuda {
namespace {

constexpr float kLowestFloat = std::numeric_limits<float>::lowest();

TEST(LabelLossIsThatOfTheLabelAmongItsNegatives) {
  const std::vector<float> true_logits = {0, 2, -3, 80, -200, 5};
  const std::vector<float> true_offsets = {0, 1, 0.5f, -1, 0, 0};
  const std::vector<float> log_partition = {0, -1, 4, -90, 300, kLowestFloat};
  const int64_t batch = 6;
  std::vector<float> losses(batch), d_true(batch), d_log(batch);
  const LabelLossBody body{true_logits.data(), true_offsets.data(), log_partition.data(), batch,
                           losses.data(),      d_true.data(),       d_log.data()};
  for (int64_t b = 0; b < batch; ++b) body(b);
  for (int64_t b = 0; b < batch; ++b) {
    const double gap = static_cast<double>(log_partition[b]) - true_logits[b] - true_offsets[b];
    const double loss = gap > 30 ? gap : std::log1p(std::exp(gap));
    EXPECT_NEAR(losses[b], loss, 1e-6 * (1 + loss));
    EXPECT_NEAR(d_log[b], 1 / (1 + std::exp(-gap)) / batch, 1e-7);
    EXPECT_NEAR(d_true[b], -d_log[b], 0.0);
  }
}

}  // namespace
}  // namespace cuda
}  // namespace largeout
