// Products of packed rows with packed queries, in registers. For X_simd.cc files only.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_CLASS_SCAN_PACKED_PRODUCTS_H_
#define LARGEOUT_CUSTOM_OPS_CORE_CLASS_SCAN_PACKED_PRODUCTS_H_

#include <cstdint>

#include "custom_ops/core/base/simd.h"
#include "custom_ops/core/class_scan/packed_rows_simd.h"

namespace largeout {
namespace LARGEOUT_SIMD {

// The lanes run along the rows of a group.
static_assert(kGroupRows % kLanes == 0, "a group is so many whole vectors");
inline constexpr int kGroupVectors = kGroupRows / kLanes;

// Lane i: sum[i] + the sum over j of byte j of row[i] (unsigned) times byte j of query[i].
// REQUIRES: the sum of two such products fits into 16 bits.
inline Ints AddProducts(Ints sum, Ints row, Ints query) {
#if defined(__AVX512VNNI__)
  return (Ints)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)row, (__m512i)query);
#elif defined(__AVX2__)
  const __m256i pairs = _mm256_maddubs_epi16((__m256i)row, (__m256i)query);
  return sum + (Ints)_mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
#elif defined(__SSE2__)
  const __m128i codes = (__m128i)row, numbers = (__m128i)query;
  const __m128i even = _mm_madd_epi16(_mm_and_si128(codes, _mm_set1_epi16(255)),
                                      _mm_srai_epi16(_mm_slli_epi16(numbers, 8), 8));
  const __m128i odd = _mm_madd_epi16(_mm_srli_epi16(codes, 8), _mm_srai_epi16(numbers, 8));
  return sum + (Ints)even + (Ints)odd;
#elif defined(__aarch64__)
  const uint8x16_t codes = (uint8x16_t)row;
  const int8x16_t numbers = (int8x16_t)query;
  const int16x8_t low =
      (int16x8_t)vmovl_u8(vget_low_u8(codes)) * vmovl_s8(vget_low_s8(numbers));
  const int16x8_t high = (int16x8_t)vmovl_high_u8(codes) * vmovl_high_s8(numbers);
  return (Ints)vpadalq_s16((int32x4_t)sum, vpaddq_s16(low, high));
#else
  for (int shift = 0; shift < 32; shift += 8) {
    sum += ((row >> shift) & 255) * ((query << (24 - shift)) >> 24);
  }
  return sum;
#endif
}

// The sums of the rows of G groups, for Q queries.
template <int G, int Q>
using ProductSums = Ints[Q][G * kGroupVectors];

// The products of the codes of the rows of groups group, ..., group + G - 1 with those of Q
// queries; query_of(q) is query q.
template <int G, int Q, class QueryOf>
inline __attribute__((always_inline)) void SumProducts(const PackedRows& rows, int64_t group,
                                                       const PackedQueries& queries,
                                                       const QueryOf& query_of,
                                                       ProductSums<G, Q>& sums) {
  const int64_t width = rows.width;
  const uint8_t* codes = rows.group_codes(group);
  const int8_t* numbers[Q];
  for (int q = 0; q < Q; ++q) {
    numbers[q] = queries.codes + query_of(q) * width;
    const int32_t codes_of_zero = kCodeOfZero * queries.sums[query_of(q)];
    for (Ints& sum : sums[q]) sum = Ints{} - codes_of_zero;
  }
  for (int64_t k = 0; k < width; k += kCodesTogether, codes += kGroupRows * kCodesTogether) {
    Ints row[G * kGroupVectors];
#pragma GCC unroll 8
    for (int v = 0; v < G * kGroupVectors; ++v) {
      row[v] = LoadInts(codes + v / kGroupVectors * kGroupRows * width +
                        v % kGroupVectors * sizeof(Ints));
    }
#pragma GCC unroll 8
    for (int q = 0; q < Q; ++q) {
      int32_t together;
      std::memcpy(&together, numbers[q] + k, sizeof(together));
#pragma GCC unroll 8
      for (int v = 0; v < G * kGroupVectors; ++v) {
        sums[q][v] = AddProducts(sums[q][v], row[v], Ints{} + together);
      }
    }
  }
}

}  // namespace LARGEOUT_SIMD
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_CLASS_SCAN_PACKED_PRODUCTS_H_
