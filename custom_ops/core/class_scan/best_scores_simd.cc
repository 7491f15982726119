#include "custom_ops/core/class_scan/best_scores_simd.h"

#include "custom_ops/core/base/simd.h"

namespace largeout {
namespace LARGEOUT_SIMD {
namespace {

inline constexpr int kChains = 4;     // independent chains of maxima
inline constexpr int kHalvings = 10;  // of the range in which the bound lies

// Bit i is set if lane i of a is at least lane i of b.
inline uint32_t NotBelow(Floats a, Floats b) {
#if defined(__AVX512F__)
  return _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_GE_OQ);
#elif defined(__AVX2__)
  return static_cast<uint32_t>(_mm256_movemask_ps((__m256)(a >= b)));
#elif defined(__SSE2__)
  return static_cast<uint32_t>(_mm_movemask_ps((__m128)(a >= b)));
#elif defined(__aarch64__)
  return BitsOfLanes(a >= b);
#else
  uint32_t mask = 0;
  for (int lane = 0; lane < kLanes; ++lane) mask |= uint32_t{a[lane] >= b[lane]} << lane;
  return mask;
#endif
}

// How many of the values are at least `bound`.
inline int64_t CountFrom(const float* values, int64_t size, float bound) {
  int64_t count = 0;
  for (int64_t i = 0; i < size; i += kLanes) {
    count += __builtin_popcount(NotBelow(Load(values + i), Broadcast(bound)));
  }
  return count;
}

}  // namespace

void GroupMaxima(const float* scores, int64_t size, int64_t num_groups, float* maxima) {
  for (int64_t group = 0; group < num_groups; group += kLanes) {
    Floats tops[kChains];
    for (Floats& top : tops) top = Broadcast(-__builtin_inff());
    int64_t i = group;
    for (; i + (kChains - 1) * num_groups < size; i += kChains * num_groups) {
#pragma GCC unroll 4
      for (int c = 0; c < kChains; ++c)
        tops[c] = Max(Load(scores + i + c * num_groups), tops[c]);
    }
    for (; i < size; i += num_groups) tops[0] = Max(Load(scores + i), tops[0]);
    Store(Max(Max(tops[0], tops[1]), Max(tops[2], tops[3])), maxima + group);
  }
}

void FindBound(const float* values, int64_t size, int64_t k, float* bound) {
  const Floats infinity = Broadcast(__builtin_inff());
  Floats least = infinity, most = -infinity;  // of the finite ones
  for (int64_t i = 0; i < size; i += kLanes) {
    const Floats value = Load(values + i);
    least = value > -infinity && value < least ? value : least;
    most = value < infinity && value > most ? value : most;
  }
  float low = least[0], high = most[0];
  for (int lane = 1; lane < kLanes; ++lane) {
    low = least[lane] < low ? least[lane] : low;
    high = most[lane] > high ? most[lane] : high;
  }
  *bound = -__builtin_inff();
  if (CountFrom(values, size, low) < k) return;
  for (int halving = 0; halving < kHalvings; ++halving) {
    const float middle = 0.5f * low + 0.5f * high;
    (CountFrom(values, size, middle) >= k ? low : high) = middle;
  }
  *bound = low;
}

void PositionsFrom(const float* scores, int64_t size, float bound, int32_t* positions,
                   int64_t* count) {
  const Floats limit = Broadcast(bound);
  int64_t found = 0;
  for (int64_t i = 0; i < size; i += kScoreMultiple) {
    uint32_t mask = 0;
    for (int part = 0; part < kScoreMultiple; part += kLanes) {
      mask |= NotBelow(Load(scores + i + part), limit) << part;
    }
    for (; mask != 0; mask &= mask - 1) {
      positions[found++] = static_cast<int32_t>(i) + __builtin_ctz(mask);
    }
  }
  *count = found;
}

}  // namespace LARGEOUT_SIMD
}  // namespace largeout
