#include "custom_ops/core/candidates/candidates_simd.h"

#include "custom_ops/core/base/simd.h"

namespace largeout {
namespace LARGEOUT_SIMD {

void AddOffsets(const float* logits, const float* offsets, int64_t size, float* buffer) {
  int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    Store(Load(logits + i) + Load(offsets + i), buffer + i);
  }
  const int64_t rest = size - i;
  if (rest > 0)
    StorePart(LoadPart(logits + i, rest) + LoadPart(offsets + i, rest), rest, buffer + i);
}

void CountAbove(const float* buffer, int64_t size, float score, int64_t* above) {
  const Floats scores = Broadcast(score);
  Ints counts{};
  int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes) counts -= Load(buffer + i) > scores;
  *above = 0;
  for (int lane = 0; lane < kLanes; ++lane) *above += counts[lane];
  for (; i < size; ++i) *above += buffer[i] > score;
}

void MaxAndSumExp(const float* buffer, int64_t size, const float* next, float* max,
                  float* sum) {
  // Four running maxima: with one, each comparison waits for the previous one.
  constexpr int kMaxima = 4;
  Floats maxima[kMaxima];
  for (Floats& each : maxima) each = Broadcast(kPaddingValue);
  int64_t i = 0;
  for (; i + kMaxima * kLanes <= size; i += kMaxima * kLanes) {
    for (int k = 0; k < kMaxima; ++k) {
      maxima[k] = Max(Load(buffer + i + k * kLanes), maxima[k]);
    }
  }
  for (; i < size; i += kLanes) maxima[0] = Max(Load(buffer + i), maxima[0]);
  const Floats lane_max = Max(Max(maxima[0], maxima[1]), Max(maxima[2], maxima[3]));
  *max = lane_max[0];
  for (int lane = 1; lane < kLanes; ++lane)
    *max = lane_max[lane] > *max ? lane_max[lane] : *max;
  const Floats shift = Broadcast(*max);
  Floats lane_sum{};
  for (int64_t i = 0; i < size; i += kLanes) {
    __builtin_prefetch(next + i);
    lane_sum += Exp(Load(buffer + i) - shift);
  }
  *sum = 0;
  for (int lane = 0; lane < kLanes; ++lane) *sum += lane_sum[lane];
}

void ScaledExp(const float* buffer, int64_t size, const float* next, float shift, float scale,
               float* out, float* sums) {
  int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    __builtin_prefetch(next + i, 1);
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
