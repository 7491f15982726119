#include "custom_ops/core/inverted_file/packed_means.h"

#include <algorithm>

#include "custom_ops/core/base/rounding.h"
#include "custom_ops/core/base/simd_level.h"
#include "custom_ops/core/inverted_file/inverted_file_simd.h"

namespace largeout {
namespace {

constexpr int64_t kQueriesAtOnce = 32;  // their scores stay in a core's cache

}  // namespace

PackedMeans::PackedMeans(const ClassMatrix& means, const ParallelFor& parallel)
    : codes_(NumCodes(means.num_classes, PackedWidth(means.dim))),
      scales_(NumScales(means.num_classes)),
      rows_{codes_.get(), scales_.get(), means.num_classes, PackedWidth(means.dim)} {
  PackAllRows(means, nullptr, parallel, rows_);
}

void PackedMeans::Score(const PackedQueries& queries, int64_t num_queries, int64_t cost,
                        const ParallelFor& parallel, const UseScores& use) const {
  // The vectorised code treats the means as the members of one list, searched by some queries.
  const int32_t offsets[] = {0, static_cast<int32_t>(rows_.num_rows)};
  const ListBlock all = {0, 0, static_cast<int32_t>(rows_.num_groups())};
  const int64_t num_scores = rows_.num_groups() * kGroupRows;
  const int64_t chunks = CeilDiv(num_queries, kQueriesAtOnce);
  const int64_t cost_of_chunk = kQueriesAtOnce * (cost + num_scores * rows_.width / 64);
  parallel(chunks, cost_of_chunk, [&](int64_t begin, int64_t end) {
    const AlignedFloats scores(kQueriesAtOnce * num_scores);
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
