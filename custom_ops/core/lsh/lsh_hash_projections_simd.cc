#include "custom_ops/core/base/rounding.h"
#include "custom_ops/core/base/simd.h"
#include "custom_ops/core/lsh/lsh_hash_prefetcher.h"
#include "custom_ops/core/lsh/lsh_hash_simd.h"

namespace largeout {
namespace LARGEOUT_SIMD {
namespace {

// Keeps the compiler from fusing a product with the following sum. Otherwise rounding, and so
// the hashes, would depend on the instruction set.
inline Floats Rounded(Floats product) {
#if defined(__x86_64__)
  asm("" : "+v"(product));
#elif defined(__aarch64__)
  asm("" : "+w"(product));
#endif
  return product;
}

// The number of coordinates that one pass of the transform combines.
constexpr int kRadix = kVectorRegisters / 2;

// log2(R) steps of the fast Hadamard transform, on coordinates `step` apart. `step` is 1 or at
// least R. The order of the additions does not depend on R.
template <int R>
inline void Butterflies(Floats* x) {
#pragma GCC unroll 4
  for (int half = 1; half < R; half *= 2) {
#pragma GCC unroll 16
    for (int i = 0; i < R; ++i) {
      if (i & half) continue;
      const Floats sum = x[i] + x[i + half];
      x[i + half] = x[i] - x[i + half];
      x[i] = sum;
    }
  }
}

template <int R>
inline void HadamardPass(int64_t size, int64_t step, float* data) {
  for (int64_t block = 0; block < size; block += R * step) {
    float* begin = data + block * kHashRows;
    for (float* at = begin; at < begin + step * kHashRows; at += kLanes) {
      Floats x[R];
#pragma GCC unroll 16
      for (int i = 0; i < R; ++i) x[i] = Load(at + i * step * kHashRows);
      Butterflies<R>(x);
#pragma GCC unroll 16
      for (int i = 0; i < R; ++i) Store(x[i], at + i * step * kHashRows);
    }
  }
}

inline float FloatOf(int32_t bits) {
  float number;
  std::memcpy(&number, &bits, sizeof(number));
  return number;
}

// The first pass: steps of the transform of diag(signs) times `from`.
template <int R>
void SignedHadamardPass(const float* from, const int32_t* signs, int64_t size,
                        Prefetcher& prefetcher, float* to) {
  for (int64_t block = 0; block < size; block += R) {
    prefetcher.Next();
    for (int64_t at = block * kHashRows; at < (block + 1) * kHashRows; at += kLanes) {
      Floats x[R];
#pragma GCC unroll 16
      for (int i = 0; i < R; ++i) {
        x[i] = Load(from + at + i * kHashRows) * FloatOf(signs[block + i]);
      }
      Butterflies<R>(x);
#pragma GCC unroll 16
      for (int i = 0; i < R; ++i) Store(x[i], to + at + i * kHashRows);
    }
  }
}

// Rotates coordinates i and i + half by the angle whose cosine is cosines[i].
void TurnPairs(const int32_t* cosines, const int32_t* sines, int64_t half, float* data) {
  for (int64_t i = 0; i < half; ++i) {
    const float cosine = FloatOf(cosines[i]), sine = FloatOf(sines[i]);
    for (float* at = data + i * kHashRows; at < data + (i + 1) * kHashRows; at += kLanes) {
      const Floats x = Load(at), y = Load(at + half * kHashRows);
      Store(Rounded(x * cosine) + Rounded(y * sine), at);
      Store(Rounded(y * cosine) - Rounded(x * sine), at + half * kHashRows);
    }
  }
}

// to = H diag(signs) from, not normalised. REQUIRES: size >= 64, a power of two.
void Rotate(const float* from, const int32_t* signs, int64_t size, Prefetcher& prefetcher,
            float* to) {
  SignedHadamardPass<kRadix>(from, signs, size, prefetcher, to);
  int64_t step = kRadix;
  for (; size / step >= kRadix; step *= kRadix) HadamardPass<kRadix>(size, step, to);
  if (size / step == 8) HadamardPass<8>(size, step, to);
  if (size / step == 4) HadamardPass<4>(size, step, to);
  if (size / step == 2) HadamardPass<2>(size, step, to);
}

}  // namespace

void ProjectionValues(const ProjectionFunctions& functions, const float* panel,
                      const UpcomingRows& upcoming, float* scratch, int32_t* values) {
  const int64_t size = functions.padded_dim;
  float* spread = scratch;
  float* projections = scratch + size * kHashRows;
  const int32_t* cosines = functions.factors + size;
  const int32_t* signs = cosines + size;
  const int64_t rotations = 1 + CeilDiv(functions.num_values, size);
  Prefetcher prefetcher(upcoming, rotations * size / kRadix);
  Rotate(panel, functions.factors, size, prefetcher, spread);
  TurnPairs(cosines, cosines + size / 2, size / 2, spread);
  for (int64_t h = 0; h < functions.num_values; h += size) {
    Rotate(spread, signs + h, size, prefetcher, projections);
    const int64_t count = functions.num_values - h < size ? functions.num_values - h : size;
    for (int64_t i = 0; i < count * kHashRows; i += kLanes) {
      const Ints positive = Load(projections + i) > 0.0f;
      StoreInts(-positive, values + h * kHashRows + i);
    }
  }
}

}  // namespace LARGEOUT_SIMD
}  // namespace largeout
