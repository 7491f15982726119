#include "custom_ops/core/candidates/candidate_softmax_simd.h"

#include "custom_ops/core/base/simd.h"

namespace largeout {
namespace LARGEOUT_SIMD {

void MaxAndSumExp(const float* buffer, int64_t size, float* max, float* sum) {
  Floats lane_max = Broadcast(kPaddingValue);
  for (int64_t i = 0; i < size; i += kLanes) lane_max = Max(lane_max, Load(buffer + i));
  *max = lane_max[0];
  for (int lane = 1; lane < kLanes; ++lane)
    *max = lane_max[lane] > *max ? lane_max[lane] : *max;
  const Floats shift = Broadcast(*max);
  Floats lane_sum{};
  for (int64_t i = 0; i < size; i += kLanes) lane_sum += Exp(Load(buffer + i) - shift);
  *sum = 0;
  for (int lane = 0; lane < kLanes; ++lane) *sum += lane_sum[lane];
}

void ScaledExp(const float* buffer, int64_t size, float shift, float scale, float* out,
               float* sums) {
  int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    const Floats value = Exp(Load(buffer + i) - shift) * scale;
    Store(value, out + i);
    Store(Load(sums + i) + value, sums + i);
  }
  const Floats last = Exp(Load(buffer + i) - shift) * scale;
  for (int lane = 0; i < size; ++i, ++lane) {
    out[i] = last[lane];
    sums[i] += last[lane];
  }
}

}  // namespace LARGEOUT_SIMD
}  // namespace largeout
