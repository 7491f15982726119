#include "custom_ops/core/inverted_file_simd.h"

#include "custom_ops/core/simd.h"

namespace largeout {
namespace LARGEOUT_SIMD {
namespace {

// A list has few queries, so the lanes run along the rows and a tile keeps one
// vector of partial sums for each of kLanes pairs of a row and a query: as many
// queries as there are, up to this, and as many rows as make it kLanes pairs.
inline constexpr int kMostQueries = kLanes / 4;
inline constexpr int kMostRows = 8;         // whose addresses stay in registers
inline constexpr int kCodes = 2 * kLanes;   // multiplied by one instruction
inline constexpr int64_t kBlocksAhead = 4;  // how far ahead rows are prefetched

// The rows of a block; the bias of those that do not count is -inf.
struct Rows {
  const int8_t* codes[kBlockRows];
  float scale[kBlockRows];
  float bias[kBlockRows];
};

typedef int16_t Shorts __attribute__((vector_size(kCodes * sizeof(int16_t))));

inline Shorts LoadCodes(const int16_t* from) {
  Shorts value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

inline Shorts LoadCodes(const int8_t* from) {
#if defined(__AVX512BW__)
  return (Shorts)_mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i*)from));
#elif defined(__AVX2__)
  return (Shorts)_mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i*)from));
#elif defined(__SSE2__)
  const __m128i bytes = _mm_loadl_epi64((const __m128i*)from);
  return (Shorts)_mm_srai_epi16(_mm_unpacklo_epi8(bytes, bytes), 8);
#else
  Shorts value;
  for (int i = 0; i < kCodes; ++i) value[i] = from[i];
  return value;
#endif
}

// Lane i: a[2i] * b[2i] + a[2i + 1] * b[2i + 1].
inline Ints PairProducts(Shorts a, Shorts b) {
#if defined(__AVX512BW__)
  return (Ints)_mm512_madd_epi16((__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
  return (Ints)_mm256_madd_epi16((__m256i)a, (__m256i)b);
#elif defined(__SSE2__)
  return (Ints)_mm_madd_epi16((__m128i)a, (__m128i)b);
#else
  Ints sum;
  for (int i = 0; i < kLanes; ++i) sum[i] = a[2 * i] * b[2 * i] + a[2 * i + 1] * b[2 * i + 1];
  return sum;
#endif
}

// [a0 + aM, b0 + bM, a1 + aM+1, b1 + bM+1, ...] with M half the lanes.
inline Ints Fold(Ints a, Ints b) {
#if defined(__AVX512F__)
  return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23) +
         __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15,
                                 31);
#elif defined(__AVX2__)
  return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11) +
         __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
#else
  return __builtin_shufflevector(a, b, 0, 4, 1, 5) + __builtin_shufflevector(a, b, 2, 6, 3, 7);
#endif
}

// Lane i of the result is the sum over the lanes of vectors[i * stride], for N = kLanes.
template <int N>
inline __attribute__((always_inline)) Ints SumsOfLanes(const Ints* vectors, int stride) {
  if constexpr (N == 1) {
    return vectors[0];
  } else {
    return Fold(SumsOfLanes<N / 2>(vectors, 2 * stride),
                SumsOfLanes<N / 2>(vectors + stride, 2 * stride));
  }
}

// Lane q * R + r: the product of row r and query q, for Q queries and R = kLanes / Q rows.
template <int Q>
inline __attribute__((always_inline)) Ints Products(const int8_t* const* rows,
                                                    const int16_t* const* queries,
                                                    int64_t width) {
  constexpr int R = kLanes / Q;
  constexpr int kRows = R < kMostRows ? R : kMostRows;
  Ints sums[kLanes] = {};
#pragma GCC unroll 4
  for (int first = 0; first < R; first += kRows) {
    for (int64_t k = 0; k < width; k += kCodes) {
      Shorts query[Q];
#pragma GCC unroll 8
      for (int q = 0; q < Q; ++q) query[q] = LoadCodes(queries[q] + k);
#pragma GCC unroll 8
      for (int r = first; r < first + kRows; ++r) {
        const Shorts row = LoadCodes(rows[r] + k);
#pragma GCC unroll 8
        for (int q = 0; q < Q; ++q) sums[q * R + r] += PairProducts(row, query[q]);
      }
    }
  }
  return SumsOfLanes<kLanes>(sums, 1);
}

// All rows of the block for the Q queries from `pairs`.
template <int Q>
void ScoreQueries(const ListScores& work, const Rows& rows, const QueryOfList* pairs,
                  int64_t place) {
  constexpr int R = kLanes / Q;
  const int64_t width = work.rows.width;
  const int16_t* queries[Q];
  float scale[Q];
  float* scores[Q];
  for (int q = 0; q < Q; ++q) {
    queries[q] = work.queries.codes + pairs[q].query * width;
    scale[q] = work.queries.scales[pairs[q].query];
    scores[q] = work.scores + pairs[q].segment + place;
  }
  for (int first = 0; first < kBlockRows; first += R) {
    alignas(64) float products[kLanes];
    Store(__builtin_convertvector(Products<Q>(rows.codes + first, queries, width), Floats),
          products);
#pragma GCC unroll 8
    for (int q = 0; q < Q; ++q) {
      for (int r = 0; r < R; ++r) {
        const float factor = scale[q] * rows.scale[first + r];
        scores[q][first + r] = products[q * R + r] * factor + rows.bias[first + r];
      }
    }
  }
}

inline void FindRows(const PackedRows& packed, const ListBlock& block, Rows* rows) {
  for (int i = 0; i < kBlockRows; ++i) {
    const int64_t row = block.first + (i < block.count ? i : 0);
    rows->codes[i] = packed.codes + row * packed.width;
    rows->scale[i] = packed.scales[row].scale;
    rows->bias[i] = i < block.count ? packed.scales[row].bias : -__builtin_inff();
  }
}

inline void Prefetch(const PackedRows& packed, const ListBlock& block) {
  const int8_t* codes = packed.codes + block.first * packed.width;
  for (int64_t i = 0; i < block.count * packed.width; i += 64) __builtin_prefetch(codes + i);
  __builtin_prefetch(packed.scales + block.first);
  __builtin_prefetch(packed.scales + block.first + block.count - 1);
}

}  // namespace

void ScoreBlocks(const ListScores& work, int64_t begin, int64_t end) {
  Rows rows;
  for (int64_t i = begin; i < end; ++i) {
    if (i + kBlocksAhead < end) Prefetch(work.rows, work.blocks[i + kBlocksAhead]);
    const ListBlock& block = work.blocks[i];
    FindRows(work.rows, block, &rows);
    int64_t pair = work.pair_begin[block.list];
    const int64_t last = work.pair_begin[block.list + 1];
    for (; pair + kMostQueries <= last; pair += kMostQueries) {
      ScoreQueries<kMostQueries>(work, rows, work.pairs + pair, block.place);
    }
    if (kMostQueries == 4 && pair + 2 <= last) {
      ScoreQueries<2>(work, rows, work.pairs + pair, block.place);
      pair += 2;
    }
    for (; pair < last; ++pair) ScoreQueries<1>(work, rows, work.pairs + pair, block.place);
  }
}

}  // namespace LARGEOUT_SIMD
}  // namespace largeout
