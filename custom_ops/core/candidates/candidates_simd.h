// The vectorised loops of candidates.cc and candidate_softmax.cc, at each level of
// simd_level.h.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_CANDIDATES_CANDIDATES_SIMD_H_
#define LARGEOUT_CUSTOM_OPS_CORE_CANDIDATES_CANDIDATES_SIMD_H_

#include <cstdint>

#include "custom_ops/core/base/simd_level.h"

namespace largeout {

// Buffers have room for this many more floats, set to the lowest float.
inline constexpr int kBufferPadding = 16;
inline constexpr float kPaddingValue = -3.40282347e38f;

// `next`: the `size` floats that the caller reads next. They are prefetched, because the matrix
// of the logits does not fit into the L1 and L2 caches. `next` may be the end of the matrix.
#define LARGEOUT_DECLARE_CANDIDATES(level)                                                     \
  namespace level {                                                                            \
  /* buffer[i] = logits[i] + offsets[i]. */                                                    \
  void AddOffsets(const float* logits, const float* offsets, int64_t size, float* buffer);     \
  /* *above: how many numbers are above `score`; none is above a NaN. */                       \
  void CountAbove(const float* buffer, int64_t size, float score, int64_t* above);             \
  /* max, at least the lowest float, and sum of exp(x - max), of a padded buffer. */           \
  void MaxAndSumExp(const float* buffer, int64_t size, const float* next, float* max,          \
                    float* sum);                                                               \
  /* out[i] = scale * exp(buffer[i] - shift); sums[i] += out[i]. Only the buffer is padded. */ \
  void ScaledExp(const float* buffer, int64_t size, const float* next, float shift,            \
                 float scale, float* out, float* sums);                                        \
  }

LARGEOUT_DECLARE_CANDIDATES(generic)
LARGEOUT_DECLARE_CANDIDATES(avx2)
LARGEOUT_DECLARE_CANDIDATES(avx512)

#undef LARGEOUT_DECLARE_CANDIDATES

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_CANDIDATES_CANDIDATES_SIMD_H_
