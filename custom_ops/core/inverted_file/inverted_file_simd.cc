#include "custom_ops/core/inverted_file/inverted_file_simd.h"

#include "custom_ops/core/base/simd.h"
#include "custom_ops/core/class_scan/packed_products.h"

namespace largeout {
namespace LARGEOUT_SIMD {
namespace {

// The sums of this many groups and queries stay in registers.
inline constexpr int kMostGroups = kGroupVectors == 1 ? 4 : 1;
inline constexpr int kMostQueries = 4;
inline constexpr int64_t kBlocksAhead = 2;  // how far ahead rows are prefetched

inline void Prefetch(const PackedRows& rows, const ListBlock& block) {
  const uint8_t* codes = rows.group_codes(block.begin);
  const int64_t size = (block.end - block.begin) * kGroupRows * rows.width;
  for (int64_t i = 0; i < size; i += 64) __builtin_prefetch(codes + i);
}

// The rows of a group that are members of the list.
struct Members {
  int64_t begin, end;

  // `bias`, with -inf in the lanes of rows that are not members; lane 0 is row `first`.
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

template <int G, int Q>
inline __attribute__((always_inline)) void WriteScores(const ListScores& work, int32_t list,
                                                       int64_t group, const QueryOfList* pairs,
                                                       const ProductSums<G, Q>& sums) {
  const Members members = {work.offsets[list], work.offsets[list + 1]};
  const int64_t place = group * kGroupRows - members.begin / kGroupRows * kGroupRows;
  for (int v = 0; v < G * kGroupVectors; ++v) {
    const int64_t lane = v % kGroupVectors * kLanes;
    const int64_t of_group = group + v / kGroupVectors;
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
  ProductSums<G, Q> sums;
  const auto query_of = [&](int q) { return pairs[q].query; };
  SumProducts<G, Q>(work.rows, group, work.queries, query_of, sums);
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

// Scores groups [group, block.end), G at a time, and then the remaining groups.
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
