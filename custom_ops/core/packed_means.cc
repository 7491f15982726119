#include "custom_ops/core/packed_means.h"

#include <algorithm>
#include <memory>

#include "custom_ops/core/inverted_file_simd.h"
#include "custom_ops/core/simd_level.h"

namespace largeout {
namespace {

constexpr int64_t kQueriesAtOnce = 32;  // their scores stay in a core's cache

}  // namespace

PackedMeans::PackedMeans(const ClassMatrix& means, const ParallelFor& parallel)
    : rows_{nullptr, nullptr, means.num_classes, PackedWidth(means.dim)} {
  codes_.resize(rows_.num_groups() * kGroupRows * rows_.width);
  scales_.resize(rows_.num_groups() * kGroupRows * 2);
  rows_.codes = codes_.data();
  rows_.scales = scales_.data();
  PackAllRows(means, nullptr, parallel, rows_);
}

void PackedMeans::Score(const PackedQueries& queries, int64_t num_queries, int64_t cost,
                        const ParallelFor& parallel, const UseScores& use) const {
  // To the vectorised code the means are a list: all its members, for some queries.
  const int32_t offsets[] = {0, static_cast<int32_t>(rows_.num_rows)};
  const ListBlock all = {0, 0, static_cast<int32_t>(rows_.num_groups())};
  const int64_t num_scores = rows_.num_groups() * kGroupRows;
  const int64_t chunks = (num_queries + kQueriesAtOnce - 1) / kQueriesAtOnce;
  const int64_t cost_of_chunk = kQueriesAtOnce * (cost + num_scores * rows_.width / 64);
  parallel(chunks, cost_of_chunk, [&](int64_t begin, int64_t end) {
    const std::unique_ptr<float[]> scores(new float[kQueriesAtOnce * num_scores]);
    ScoreSieve sieve;
    for (int64_t chunk = begin; chunk < end; ++chunk) {
      const int64_t first = chunk * kQueriesAtOnce;
      const int64_t count = std::min(kQueriesAtOnce, num_queries - first);
      QueryOfList some[kQueriesAtOnce];
      for (int64_t i = 0; i < count; ++i) some[i] = {first + i, i * num_scores};
      const int64_t pair_begin[] = {0, count};
      const ListScores work = {rows_, queries, offsets, &all, some, pair_begin, scores.get()};
      LARGEOUT_SIMD_DISPATCH(ScoreBlocks, work, 0, 1);
      for (int64_t i = 0; i < count; ++i) {
        use(first + i, scores.get() + i * num_scores, num_scores, &sieve);
      }
    }
  });
}

}  // namespace largeout
