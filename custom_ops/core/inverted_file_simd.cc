#include "custom_ops/core/inverted_file_simd.h"

#include "custom_ops/core/simd.h"

namespace largeout {
namespace LARGEOUT_SIMD {
namespace {

// The lanes run along the rows of a group. The sums of some groups and queries stay in
// registers.
static_assert(kGroupRows % kLanes == 0, "a group is so many whole vectors");
inline constexpr int kVectors = kGroupRows / kLanes;  // of a group
inline constexpr int kMostGroups = kVectors == 1 ? 4 : 1;
inline constexpr int kMostQueries = 4;
inline constexpr int64_t kBlocksAhead = 2;  // how far ahead rows are prefetched

inline void Prefetch(const PackedRows& rows, const ListBlock& block) {
  const uint8_t* codes = rows.group_codes(block.begin);
  const int64_t size = (block.end - block.begin) * kGroupRows * rows.width;
  for (int64_t i = 0; i < size; i += 64) __builtin_prefetch(codes + i);
}

// Lane i: sum[i] + the sum over j of byte j of row[i], unsigned, times byte j of query[i].
// REQUIRES: two such products fit into 16 bits.
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
#else
  for (int shift = 0; shift < 32; shift += 8) {
    sum += ((row >> shift) & 255) * ((query << (24 - shift)) >> 24);
  }
  return sum;
#endif
}

// The members of the list among some rows of a group.
struct Members {
  int64_t begin, end;

  // `bias`, and -inf in the lanes of rows that are no members; lane 0 is row `first`.
  Floats Mask(Floats bias, int64_t first) const {
    if (begin <= first && first + kLanes <= end) return bias;
    float lanes[kLanes];
    std::memcpy(lanes, &bias, sizeof(lanes));
    for (int lane = 0; lane < kLanes; ++lane) {
      if (first + lane < begin || first + lane >= end) lanes[lane] = -__builtin_inff();
    }
    return Load(lanes);
  }
};

// The sums of the rows of G groups, for Q queries.
template <int G, int Q>
using Sums = Ints[Q][G * kVectors];

// The products of the rows of groups group, ..., group + G - 1 with Q queries.
template <int G, int Q>
inline __attribute__((always_inline)) void SumProducts(const ListScores& work, int64_t group,
                                                       const QueryOfList* pairs,
                                                       Sums<G, Q>& sums) {
  const int64_t width = work.rows.width;
  const uint8_t* rows = work.rows.group_codes(group);
  const int8_t* queries[Q];
  for (int q = 0; q < Q; ++q) {
    queries[q] = work.queries.codes + pairs[q].query * width;
    const int32_t codes_of_zero = kCodeOfZero * work.queries.sums[pairs[q].query];
    for (Ints& sum : sums[q]) sum = Ints{} - codes_of_zero;
  }
  for (int64_t k = 0; k < width; k += kCodesTogether, rows += kGroupRows * kCodesTogether) {
    Ints row[G * kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < G * kVectors; ++v) {
      row[v] = LoadInts(rows + v / kVectors * kGroupRows * width + v % kVectors * sizeof(Ints));
    }
#pragma GCC unroll 4
    for (int q = 0; q < Q; ++q) {
      int32_t codes;
      std::memcpy(&codes, queries[q] + k, sizeof(codes));
#pragma GCC unroll 4
      for (int v = 0; v < G * kVectors; ++v) {
        sums[q][v] = AddProducts(sums[q][v], row[v], Ints{} + codes);
      }
    }
  }
}

template <int G, int Q>
inline __attribute__((always_inline)) void WriteScores(const ListScores& work, int32_t list,
                                                       int64_t group, const QueryOfList* pairs,
                                                       const Sums<G, Q>& sums) {
  const Members members = {work.offsets[list], work.offsets[list + 1]};
  const int64_t place = group * kGroupRows - members.begin / kGroupRows * kGroupRows;
  for (int v = 0; v < G * kVectors; ++v) {
    const int64_t lane = v % kVectors * kLanes;
    const int64_t of_group = group + v / kVectors;
    const Floats scale = Load(work.rows.group_scales(of_group) + lane);
    const Floats bias = members.Mask(Load(work.rows.group_biases(of_group) + lane),
                                     of_group * kGroupRows + lane);
    for (int q = 0; q < Q; ++q) {
      const Floats factor = scale * work.queries.scales[pairs[q].query];
      Store(__builtin_convertvector(sums[q][v], Floats) * factor + bias,
            work.scores + pairs[q].segment + place + v * kLanes);
    }
  }
}

template <int G, int Q>
void ScoreTile(const ListScores& work, int32_t list, int64_t group, const QueryOfList* pairs) {
  Sums<G, Q> sums;
  SumProducts<G, Q>(work, group, pairs, sums);
  WriteScores<G, Q>(work, list, group, pairs, sums);
}

// Scores G groups for all queries of the list.
template <int G>
void ScoreGroups(const ListScores& work, int32_t list, int64_t group) {
  const QueryOfList* pair = work.pairs + work.pair_begin[list];
  const QueryOfList* end = work.pairs + work.pair_begin[list + 1];
  for (; pair + kMostQueries <= end; pair += kMostQueries) {
    ScoreTile<G, kMostQueries>(work, list, group, pair);
  }
  for (; pair + 2 <= end; pair += 2) ScoreTile<G, 2>(work, list, group, pair);
  for (; pair < end; ++pair) ScoreTile<G, 1>(work, list, group, pair);
}

// Scores groups [group, block.end), G at a time and then as many as are left.
template <int G>
void ScoreFrom(const ListScores& work, const ListBlock& block, int64_t group) {
  for (; group + G <= block.end; group += G) ScoreGroups<G>(work, block.list, group);
  if constexpr (G > 1) ScoreFrom<G - 1>(work, block, group);
}

}  // namespace

void ScoreBlocks(const ListScores& work, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    if (i + kBlocksAhead < end) Prefetch(work.rows, work.blocks[i + kBlocksAhead]);
    ScoreFrom<kMostGroups>(work, work.blocks[i], work.blocks[i].begin);
  }
}

}  // namespace LARGEOUT_SIMD
}  // namespace largeout
