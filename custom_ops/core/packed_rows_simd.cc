#include "custom_ops/core/packed_rows_simd.h"

#include "custom_ops/core/simd.h"

namespace largeout {
namespace LARGEOUT_SIMD {
namespace {

inline constexpr int64_t kRowsAhead = 16;  // how far ahead places are prefetched
inline constexpr int64_t kCacheLine = 64;

inline int64_t PartAt(int64_t k, int64_t dim) {
  const int64_t left = dim - k;
  return left >= kLanes ? kLanes : left > 0 ? left : 0;
}

// kLanes numbers of the row from the k-th, 0 beyond its end.
inline Floats LoadAt(const float* row, int64_t k, int64_t dim) {
  if (k + kLanes <= dim) return Load(row + k);
  Floats value{};
  std::memcpy(&value, row + k, PartAt(k, dim) * sizeof(float));
  return value;
}

// The largest magnitude in the row; not finite if a number is not.
inline float LargestMagnitude(const float* row, int64_t dim) {
  Ints largest{};  // as integers, magnitudes are in order, and NaN is above infinity
  for (int64_t k = 0; k < dim; k += kLanes) {
    const Ints magnitude = (Ints)LoadAt(row, k, dim) & 0x7fffffff;
    largest = magnitude > largest ? magnitude : largest;
  }
  int32_t lanes[kLanes];
  std::memcpy(lanes, &largest, sizeof(lanes));
  int32_t result = 0;
  for (int lane = 0; lane < kLanes; ++lane)
    result = lanes[lane] > result ? lanes[lane] : result;
  float magnitude;
  std::memcpy(&magnitude, &result, sizeof(magnitude));
  return magnitude;
}

// The low bits of kLanes integers.
inline void StoreLow(Ints value, int8_t* to) {
#if defined(__AVX512F__)
  _mm_storeu_si128((__m128i*)to, _mm512_maskz_cvtepi32_epi8(0xffff, (__m512i)value));
#else
  int32_t lanes[kLanes];
  std::memcpy(lanes, &value, sizeof(lanes));
  for (int lane = 0; lane < kLanes; ++lane) to[lane] = static_cast<int8_t>(lanes[lane]);
#endif
}

inline void StoreLow(Ints value, int16_t* to) {
#if defined(__AVX512F__)
  _mm256_storeu_si256((__m256i*)to, _mm512_maskz_cvtepi32_epi16(0xffff, (__m512i)value));
#else
  int32_t lanes[kLanes];
  std::memcpy(lanes, &value, sizeof(lanes));
  for (int lane = 0; lane < kLanes; ++lane) to[lane] = static_cast<int16_t>(lanes[lane]);
#endif
}

// codes[k] = round(row[k] * factor), and 0 from dim to width.
template <class Code>
inline void WriteCodes(const float* row, int64_t dim, int64_t width, float factor,
                       Code* codes) {
  for (int64_t k = 0; k < width; k += kLanes) {
    // Adding 1.5 * 2^23 leaves the rounded number in the low bits, in two's complement.
    const Floats value = k < dim ? LoadAt(row, k, dim) : Floats{};
    StoreLow((Ints)(value * factor + 12582912.0f), codes + k);
  }
}

// Returns what a code of 1 stands for. Rows of 0, or of numbers too small, get codes
// of 0; rows with a number that is not finite get these and NaN.
template <class Code>
inline float Pack(const float* row, int64_t dim, int64_t width, float most, Code* codes) {
  const float largest = LargestMagnitude(row, dim);
  const float factor = most / largest;
  const bool usable = factor > 0.0f && factor < 1e30f;
  WriteCodes(row, usable ? dim : 0, width, usable ? factor : 0.0f, codes);
  return usable ? largest / most : largest * 0.0f;
}

inline void Prefetch(const PackedRows& packed, int64_t place) {
  const int8_t* codes = packed.codes + place * packed.width;
  for (int64_t k = 0; k < packed.width; k += kCacheLine) __builtin_prefetch(codes + k, 1);
  __builtin_prefetch(packed.scales + place, 1);
}

}  // namespace

void PackRows(const ClassMatrix& matrix, const int32_t* places, int64_t begin, int64_t end,
              const PackedRows& packed) {
  for (int64_t i = begin; i < end; ++i) {
    if (places != nullptr && i + kRowsAhead < end) Prefetch(packed, places[i + kRowsAhead]);
    const int64_t place = places == nullptr ? i : places[i];
    const float bias = matrix.bias == nullptr ? 0.0f : matrix.bias[i];
    const float scale = Pack(matrix.embeddings + i * matrix.dim, matrix.dim, packed.width,
                             127.0f, packed.codes + place * packed.width);
    const bool finite = scale == scale && bias - bias == 0.0f;
    packed.scales[place] = {finite ? scale : 0.0f, finite ? bias : -__builtin_inff()};
  }
}

void PackQueries(const float* features, int64_t dim, int64_t begin, int64_t end,
                 const PackedQueries& packed) {
  for (int64_t i = begin; i < end; ++i) {
    packed.scales[i] = Pack(features + i * dim, dim, packed.width, packed.most,
                            packed.codes + i * packed.width);
  }
}

}  // namespace LARGEOUT_SIMD
}  // namespace largeout
