// Finds the classes that may be among the best of an example, from the bounds of packed rows.
// For X_simd.cc files only.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_CLASS_SCAN_CLASS_SCAN_FILTER_H_
#define LARGEOUT_CUSTOM_OPS_CORE_CLASS_SCAN_CLASS_SCAN_FILTER_H_

#include <cstdint>

#include "custom_ops/core/base/simd.h"
#include "custom_ops/core/class_scan/class_scan_simd.h"
#include "custom_ops/core/class_scan/packed_products.h"

namespace largeout {
namespace LARGEOUT_SIMD {

// Bit i is clear if lane i of a is at most lane i of b. It is therefore set for NaN.
inline uint32_t NotAtMost(Floats a, Floats b) {
#if defined(__AVX512F__)
  return _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_NLE_UQ);
#elif defined(__AVX2__)
  return static_cast<uint32_t>(
      _mm256_movemask_ps(_mm256_cmp_ps((__m256)a, (__m256)b, _CMP_NLE_UQ)));
#elif defined(__SSE2__)
  return static_cast<uint32_t>(_mm_movemask_ps(_mm_cmpnle_ps((__m128)a, (__m128)b)));
#elif defined(__aarch64__)
  return BitsOfLanes(~(a <= b));
#else
  uint32_t mask = 0;
  for (int lane = 0; lane < kLanes; ++lane) mask |= uint32_t{!(a[lane] <= b[lane])} << lane;
  return mask;
#endif
}

static_assert(kBlockClasses % kGroupRows == 0, "a block is so many whole groups");
inline constexpr int kBlockGroups = kBlockClasses / kGroupRows;

// For how many queries a tile of products keeps sums in registers.
inline constexpr int kTileQueries = kGroupVectors == 1 ? 8 : 8 / kGroupVectors;
constexpr int TileGroups(int num_queries) {
  if (kGroupVectors > 1) return 1;
  return num_queries == 8 ? 2 : num_queries == 4 ? 3 : kBlockGroups;
}

// Finds the classes of a block that may be among the best of some examples of the batch.
class PassingClasses {
 public:
  // For the block whose packed rows begin with group `first_group`. A class passes if its bound
  // exceeds the limit of an example; limits[q] is the limit of query q.
  PassingClasses(const PackedRows& rows, int64_t first_group, const PackedQueries& queries,
                 const float* limits)
      : rows_(rows), first_group_(first_group), queries_(queries), limits_(limits) {
    const int64_t left = rows.num_groups() - first_group;
    num_groups_ = left < kBlockGroups ? static_cast<int>(left) : kBlockGroups;
  }

  // Sets bit r of passing[g] if row r of group g of the block passes for any of the queries
  // [begin, end).
  void Find(int64_t begin, int64_t end, uint32_t* passing) const {
    int64_t query = begin;
    if constexpr (kTileQueries >= 8) {
      for (; query + 8 <= end; query += 8) FindFor<8>(query, passing);
    }
    if constexpr (kTileQueries >= 4) {
      for (; query + 4 <= end; query += 4) FindFor<4>(query, passing);
    }
    for (; query + 2 <= end; query += 2) FindFor<2>(query, passing);
    if (query < end) FindFor<1>(query, passing);
  }

 private:
  template <int Q>
  void FindFor(int64_t query, uint32_t* passing) const {
    constexpr int G = TileGroups(Q);
    int g = 0;
    for (; g + G <= num_groups_; g += G) FindInTile<G, Q>(g, query, passing);
    for (; g < num_groups_; ++g) FindInTile<1, Q>(g, query, passing);
  }

  template <int G, int Q>
  void FindInTile(int first, int64_t query, uint32_t* passing) const {
    ProductSums<G, Q> sums;
    SumProducts<G, Q>(
        rows_, first_group_ + first, queries_, [query](int q) { return query + q; }, sums);
    for (int v = 0; v < G * kGroupVectors; ++v) {
      const int g = first + v / kGroupVectors, lane = v % kGroupVectors * kLanes;
      passing[g] |= PassingOfVector<Q>(g, lane, query, [&](int q) { return sums[q][v]; })
                    << lane;
    }
  }

  // The vector of rows that starts at `lane` of a group. The sums of its products are
  // sum_of(0), ....
  template <int Q, class SumOf>
  inline __attribute__((always_inline)) uint32_t PassingOfVector(int g, int lane, int64_t query,
                                                                 const SumOf& sum_of) const {
    const float* bounds = rows_.group_bounds(first_group_ + g) + lane;
    const Floats scale = Load(rows_.group_scales(first_group_ + g) + lane);
    const Floats error = Load(bounds), norm = Load(bounds + kGroupRows);
    const Floats bias = Load(bounds + 2 * kGroupRows);
    uint32_t passing = 0;
#pragma GCC unroll 8
    for (int64_t q = 0; q < Q; ++q) {
      // Multiplies by the scale of the query first: the product of both scales could underflow.
      const Floats sum =
          __builtin_convertvector(sum_of(q), Floats) * queries_.scales[query + q];
      const Floats high = sum * scale + (error * queries_.norms[query + q] + bias) +
                          norm * queries_.errors[query + q];
      passing |= NotAtMost(high, Broadcast(limits_[query + q]));
    }
    return passing;
  }

  const PackedRows& rows_;
  const int64_t first_group_;
  const PackedQueries& queries_;
  const float* limits_;
  int num_groups_;
};

}  // namespace LARGEOUT_SIMD
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_CLASS_SCAN_CLASS_SCAN_FILTER_H_
