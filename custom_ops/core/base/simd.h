// Vectors of numbers at the level that the including X_simd.cc is compiled for. They use the
// compiler's vector extensions, so that one source serves all instruction sets. Include this
// file only in X_simd.cc files (see simd_level.h).

#ifndef LARGEOUT_CUSTOM_OPS_CORE_BASE_SIMD_H_
#define LARGEOUT_CUSTOM_OPS_CORE_BASE_SIMD_H_

#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>  // every 64-bit ARM processor has NEON, so the generic level uses it
#endif

namespace largeout {
namespace LARGEOUT_SIMD {

#if defined(__AVX512F__)
inline constexpr int kLanes = 16;
inline constexpr int kVectorRegisters = 32;
#elif defined(__AVX2__)
inline constexpr int kLanes = 8;
inline constexpr int kVectorRegisters = 16;
#else
inline constexpr int kLanes = 4;
#if defined(__aarch64__)
inline constexpr int kVectorRegisters = 32;
#else
inline constexpr int kVectorRegisters = 16;
#endif
#endif

typedef float Floats __attribute__((vector_size(kLanes * sizeof(float))));
typedef int32_t Ints __attribute__((vector_size(kLanes * sizeof(int32_t))));
typedef double Doubles __attribute__((vector_size(kLanes * sizeof(float))));

// The vector type for a scalar type: Floats or Doubles.
template <class Number>
struct VectorType;
template <>
struct VectorType<float> {
  typedef Floats Type;
};
template <>
struct VectorType<double> {
  typedef Doubles Type;
};
template <class Number>
using VectorOf = typename VectorType<Number>::Type;
template <class Number>
inline constexpr int kLanesOf = sizeof(VectorOf<Number>) / sizeof(Number);

inline Floats Load(const float* from) {
  Floats value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

inline void Store(Floats value, float* to) { std::memcpy(to, &value, sizeof(value)); }

// The first `count` floats of a vector. LoadPart sets the others to zero. REQUIRES: count <
// kLanes.
#if defined(__AVX512F__)
inline __mmask16 FirstLanes(int64_t count) { return static_cast<__mmask16>((1 << count) - 1); }
inline Floats LoadPart(const float* from, int64_t count) {
  return (Floats)_mm512_maskz_loadu_ps(FirstLanes(count), from);
}
inline void StorePart(Floats value, int64_t count, float* to) {
  _mm512_mask_storeu_ps(to, FirstLanes(count), (__m512)value);
}
#elif defined(__AVX2__)
inline __m256i FirstLanes(int64_t count) {
  const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)), lanes);
}
inline Floats LoadPart(const float* from, int64_t count) {
  return (Floats)_mm256_maskload_ps(from, FirstLanes(count));
}
inline void StorePart(Floats value, int64_t count, float* to) {
  _mm256_maskstore_ps(to, FirstLanes(count), (__m256)value);
}
#else
inline Floats LoadPart(const float* from, int64_t count) {
  Floats value = {};
  for (int64_t lane = 0; lane < count; ++lane) value[lane] = from[lane];
  return value;
}
inline void StorePart(Floats value, int64_t count, float* to) {
  for (int64_t lane = 0; lane < count; ++lane) to[lane] = value[lane];
}
#endif

inline Doubles Load(const double* from) {
  Doubles value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

inline void Store(Doubles value, double* to) { std::memcpy(to, &value, sizeof(value)); }

inline Ints LoadInts(const void* from) {
  Ints value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

inline void StoreInts(Ints value, void* to) { std::memcpy(to, &value, sizeof(value)); }

// Rows of width 0 may be null, which memcpy and memset do not allow.
inline void CopyFloats(const float* from, int64_t size, float* to) {
  if (size > 0) std::memcpy(to, from, size * sizeof(float));
}

inline void ZeroFloats(float* to, int64_t size) {
  if (size > 0) std::memset(to, 0, size * sizeof(float));
}

inline Floats Broadcast(float value) { return value - Floats{}; }
inline Doubles Broadcast(double value) { return value - Doubles{}; }

inline Floats Max(Floats a, Floats b) { return a > b ? a : b; }

inline Floats Sqrt(Floats x) {
#if defined(__AVX512F__)
  return (Floats)_mm512_maskz_sqrt_ps(0xffff, (__m512)x);
#elif defined(__AVX2__)
  return (Floats)_mm256_sqrt_ps((__m256)x);
#elif defined(__SSE2__)
  return (Floats)_mm_sqrt_ps((__m128)x);
#elif defined(__aarch64__)
  return (Floats)vsqrtq_f32((float32x4_t)x);
#else
  for (int lane = 0; lane < kLanes; ++lane) x[lane] = __builtin_sqrtf(x[lane]);
  return x;
#endif
}

#if defined(__aarch64__)
// Bit i is the result of a comparison in lane i.
inline uint32_t BitsOfLanes(Ints compared) {
  return vaddvq_u32((uint32x4_t)(compared & Ints{1, 2, 4, 8}));
}
#endif

// Whether a > b in any lane.
inline bool AnyGreater(Floats a, Floats b) {
#if defined(__AVX512F__)
  return _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_GT_OQ) != 0;
#elif defined(__AVX2__)
  return _mm256_movemask_ps((__m256)(a > b)) != 0;
#elif defined(__SSE2__)
  return _mm_movemask_ps((__m128)(a > b)) != 0;
#elif defined(__aarch64__)
  return vmaxvq_u32((uint32x4_t)(a > b)) != 0;
#else
  const Ints mask = a > b;
  int32_t any = 0;
  for (int lane = 0; lane < kLanes; ++lane) any |= mask[lane];
  return any != 0;
#endif
}

// The sum of all lanes. The order of the additions differs between levels.
inline float SumLanes(Floats x) {
#if defined(__SSE2__)
#if defined(__AVX512F__)
  const __m512d pairs = (__m512d)x;
  const __m256 half = (__m256)_mm512_maskz_extractf64x4_pd(0xff, pairs, 0) +
                      (__m256)_mm512_maskz_extractf64x4_pd(0xff, pairs, 1);
  __m128 sum = _mm256_castps256_ps128(half) + _mm256_extractf128_ps(half, 1);
#elif defined(__AVX2__)
  __m128 sum = _mm256_castps256_ps128((__m256)x) + _mm256_extractf128_ps((__m256)x, 1);
#else
  __m128 sum = (__m128)x;
#endif
  sum = sum + _mm_movehl_ps(sum, sum);
  return _mm_cvtss_f32(sum) + _mm_cvtss_f32(_mm_shuffle_ps(sum, sum, 1));
#elif defined(__aarch64__)
  return vaddvq_f32((float32x4_t)x);
#else
  float sum = 0;
  for (int lane = 0; lane < kLanes; ++lane) sum += x[lane];
  return sum;
#endif
}

// exp(x) to 1 ulp (2 without FMA) for x <= 80, exactly 0 below -87; NaN stays NaN.
inline Floats Exp(Floats x) {
  // x = n log 2 + r. Adding 1.5 * 2^23 rounds to an integer, which is then in the low bits,
  // already biased for the exponent of 2^n.
  const float round = 12582912.0f + 127.0f;
  const Floats shifted = x * 1.44269504f + round;
  const Floats n = shifted - round;
  Floats r = x - n * 0.693145752f;
  r = r - n * 1.42860677e-6f;
  Floats p = r * 1.3814599e-3f + 8.368717e-3f;
  p = p * r + 4.166839e-2f;
  p = p * r + 1.6666521e-1f;
  p = p * r + 4.9999994e-1f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  const Floats power = (Floats)((Ints)shifted << 23);
  return x < -87.0f ? Floats{} : p * power;
}

}  // namespace LARGEOUT_SIMD
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_BASE_SIMD_H_
