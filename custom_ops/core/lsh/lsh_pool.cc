#include "custom_ops/core/lsh/lsh_pool.h"

#include <algorithm>
#include <vector>

#include "custom_ops/core/lsh/met_ids.h"
#include "custom_ops/core/lsh/uniform_fill.h"

namespace largeout {
namespace {

// The ends of the buckets of all queries, if they are concatenated.
std::vector<int64_t> BucketEnds(const LshTables& tables, const LshQueries& queries) {
  std::vector<int64_t> ends(queries.batch * queries.num_codes);
  int64_t end = 0;
  for (int64_t i = 0; i < static_cast<int64_t>(ends.size()); ++i) {
    end += BucketOfCode(tables, i % queries.num_codes, queries.codes[i]).size;
    ends[i] = end;
  }
  return ends;
}

}  // namespace

int64_t DrawEntries(const LshTables& tables, const LshQueries& queries, int64_t num_sampled,
                    PhiloxSeed seed, const ParallelFor& parallel, int64_t* pool) {
  const std::vector<int64_t> ends = BucketEnds(tables, queries);
  const int64_t num_entries = ends.empty() ? 0 : ends.back();
  if (num_entries == 0) {
    std::fill(pool, pool + num_sampled, -1);
    return 0;
  }
  const int64_t start = StartOfDraws(seed, num_entries);
  parallel(num_sampled, 300, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t entry = EntryOfDraw(i, start, num_entries, num_sampled);
      const int64_t at = std::upper_bound(ends.begin(), ends.end(), entry) - ends.begin();
      const Bucket bucket = BucketOfCode(tables, at % queries.num_codes, queries.codes[at]);
      pool[i] = bucket.ids[bucket.size - (ends[at] - entry)];
    }
  });
  return num_entries;
}

int64_t UnionOfLists(const int64_t* lists, int64_t batch, int64_t width, int64_t num_classes,
                     int64_t num_sampled, PhiloxSeed seed, int64_t* pool) {
  MetIds met;
  met.Clear(std::min(num_sampled, num_classes));
  int64_t found = 0;
  for (int64_t i = 0; i < width * batch && found < num_sampled; ++i) {
    const int64_t id = lists[i % batch * width + i / batch];
    if (id >= 0 && met.Insert(static_cast<int32_t>(id))) pool[found++] = id;
  }
  return FillUniformly(num_classes, found, num_sampled - found, {seed, 0}, &met, pool + found);
}

}  // namespace largeout
