#include "custom_ops/core/best_scores_simd.h"

#include "custom_ops/core/simd.h"

namespace largeout {
namespace LARGEOUT_SIMD {
namespace {

// Bit i is set where lane i of a is at least that of b.
inline uint32_t NotBelow(Floats a, Floats b) {
#if defined(__AVX512F__)
  return _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_GE_OQ);
#elif defined(__AVX2__)
  return static_cast<uint32_t>(_mm256_movemask_ps((__m256)(a >= b)));
#elif defined(__SSE2__)
  return static_cast<uint32_t>(_mm_movemask_ps((__m128)(a >= b)));
#else
  uint32_t mask = 0;
  for (int lane = 0; lane < kLanes; ++lane) mask |= uint32_t{a[lane] >= b[lane]} << lane;
  return mask;
#endif
}

}  // namespace

void GroupMaxima(const float* scores, int64_t size, int64_t num_groups, float* maxima) {
  for (int64_t group = 0; group < num_groups; group += kLanes) {
    Floats top = Broadcast(-__builtin_inff());
    for (int64_t i = group; i < size; i += num_groups) top = Max(Load(scores + i), top);
    Store(top, maxima + group);
  }
}

void PositionsFrom(const float* scores, int64_t size, float bound, int32_t* positions,
                   int64_t* count) {
  const Floats limit = Broadcast(bound);
  int64_t found = 0;
  for (int64_t i = 0; i < size; i += kLanes) {
    for (uint32_t mask = NotBelow(Load(scores + i), limit); mask != 0; mask &= mask - 1) {
      positions[found++] = static_cast<int32_t>(i) + __builtin_ctz(mask);
    }
  }
  *count = found;
}

}  // namespace LARGEOUT_SIMD
}  // namespace largeout
