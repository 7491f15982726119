// Rounds floats to bfloat16 and packs them into matrices of pairs (bfloat16_product.h). For
// X_simd.cc files only.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_LINEAR_ALGEBRA_BFLOAT16_PAIRS_H_
#define LARGEOUT_CUSTOM_OPS_CORE_LINEAR_ALGEBRA_BFLOAT16_PAIRS_H_

#include <cstdint>

#include "custom_ops/core/base/simd.h"
#include "custom_ops/core/linear_algebra/bfloat16_product.h"

namespace largeout {
namespace LARGEOUT_SIMD {

typedef uint32_t Words __attribute__((vector_size(kLanes * sizeof(uint32_t))));
typedef uint64_t LongWords __attribute__((vector_size(kLanes * sizeof(uint32_t))));
typedef uint32_t HalfWords __attribute__((vector_size(kLanes / 2 * sizeof(uint32_t))));

// Rounds to the nearest bfloat16, ties to even. The result is in the upper half of each lane;
// the lower half is undefined. NaN stays NaN.
inline Words RoundToBfloat16(Floats x) {
  const Words bits = (Words)x;
  const Words rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
  return x == x ? rounded : bits | 0x00400000u;
}

inline Words PairOf(Floats even, Floats odd) {
  return (RoundToBfloat16(even) >> 16) | (RoundToBfloat16(odd) & 0xffff0000u);
}

inline void StoreWords(Words value, Pair* to) { std::memcpy(to, &value, sizeof(value)); }

// Stores the kLanes consecutive floats of x as kLanes / 2 pairs.
inline void StorePairsOf(Floats x, Pair* to) {
  const Words rounded = RoundToBfloat16(x);
  LongWords both;
  std::memcpy(&both, &rounded, sizeof(both));
  const HalfWords pairs =
      __builtin_convertvector((both >> 32 & 0xffff0000u) | (both >> 16 & 0xffffu), HalfWords);
  std::memcpy(to, &pairs, sizeof(pairs));
}

inline Floats LoadUpTo(const float* from, int64_t count) {
  if (count >= kLanes) return Load(from);
  return count > 0 ? LoadPart(from, count) : Floats{};
}

// Packs a row of `dim` floats as pairs of neighbours, padded with zeros up to `width` floats.
// REQUIRES: width is a multiple of kPairDepth.
inline void PackRow(const float* row, int64_t dim, int64_t width, Pair* to) {
  for (int64_t k = 0; k < width; k += kLanes)
    StorePairsOf(LoadUpTo(row + k, dim - k), to + k / 2);
}

// Packs two rows of `dim` floats as one row of `width` pairs. A null row stands for zeros.
// REQUIRES: width is a multiple of kPairDepth.
inline void PairRows(const float* even, const float* odd, int64_t dim, int64_t width,
                     Pair* to) {
  for (int64_t k = 0; k < width; k += kLanes) {
    const Floats a = even != nullptr ? LoadUpTo(even + k, dim - k) : Floats{};
    const Floats b = odd != nullptr ? LoadUpTo(odd + k, dim - k) : Floats{};
    StoreWords(PairOf(a, b), to + k);
  }
}

#if defined(__AVX512F__)
// to [16, 16] = the transpose of from [16, 16].
inline void TransposeTile(const Pair* from, int64_t from_stride, Pair* to, int64_t to_stride) {
  __m512i a[16], b[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) a[i] = _mm512_loadu_si512(from + i * from_stride);
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    b[i] = _mm512_maskz_unpacklo_epi32(0xffff, a[i], a[i + 1]);
    b[i + 1] = _mm512_maskz_unpackhi_epi32(0xffff, a[i], a[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    a[i] = _mm512_maskz_unpacklo_epi64(0xff, b[i], b[i + 2]);
    a[i + 1] = _mm512_maskz_unpackhi_epi64(0xff, b[i], b[i + 2]);
    a[i + 2] = _mm512_maskz_unpacklo_epi64(0xff, b[i + 1], b[i + 3]);
    a[i + 3] = _mm512_maskz_unpackhi_epi64(0xff, b[i + 1], b[i + 3]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const __m512i low = _mm512_maskz_shuffle_i32x4(0xffff, a[i], a[4 + i], 0x88);
    const __m512i high = _mm512_maskz_shuffle_i32x4(0xffff, a[i], a[4 + i], 0xdd);
    const __m512i low_2 = _mm512_maskz_shuffle_i32x4(0xffff, a[8 + i], a[12 + i], 0x88);
    const __m512i high_2 = _mm512_maskz_shuffle_i32x4(0xffff, a[8 + i], a[12 + i], 0xdd);
    _mm512_storeu_si512(to + i * to_stride,
                        _mm512_maskz_shuffle_i32x4(0xffff, low, low_2, 0x88));
    _mm512_storeu_si512(to + (4 + i) * to_stride,
                        _mm512_maskz_shuffle_i32x4(0xffff, high, high_2, 0x88));
    _mm512_storeu_si512(to + (8 + i) * to_stride,
                        _mm512_maskz_shuffle_i32x4(0xffff, low, low_2, 0xdd));
    _mm512_storeu_si512(to + (12 + i) * to_stride,
                        _mm512_maskz_shuffle_i32x4(0xffff, high, high_2, 0xdd));
  }
}
#else
inline void TransposeTile(const Pair* from, int64_t from_stride, Pair* to, int64_t to_stride) {
  for (int64_t i = 0; i < 16; ++i) {
    for (int64_t j = 0; j < 16; ++j) to[i * to_stride + j] = from[j * from_stride + i];
  }
}
#endif

}  // namespace LARGEOUT_SIMD
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_LINEAR_ALGEBRA_BFLOAT16_PAIRS_H_
