// The thread bodies of the draw from the buckets of a batch (lsh_pool.h).

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_LSH_POOL_BODY_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_LSH_POOL_BODY_H_

#include <cstdint>

#include "custom_ops/core/lsh/lsh_pool.h"
#include "custom_ops/cuda/block.h"
#include "custom_ops/cuda/seed.h"

namespace largeout {
namespace cuda {

// Bucket `at`, counted over all codes of the batch.
LARGEOUT_DEVICE inline Bucket BucketOfBatch(const LshTables& tables, const LshQueries& queries,
                                            int64_t at) {
  return BucketOfCode(tables, at % queries.num_codes, queries.codes[at]);
}

// Writes the sizes of the buckets. A prefix sum of the sizes gives the ends.
struct FindSizes {
  LshTables tables;
  LshQueries queries;
  int64_t* sizes;  // [batch * num_codes]

  LARGEOUT_DEVICE void operator()(int64_t at) const {
    sizes[at] = BucketOfBatch(tables, queries, at).size;
  }
};

struct DrawEntry {
  LshTables tables;
  LshQueries queries;
  const int64_t* ends;  // [num_buckets]: the end of each bucket if all are concatenated
  int64_t num_buckets;  // batch * num_codes
  int64_t num_sampled;
  const int64_t* seed;
  int64_t* pool;         // [num_sampled]
  int64_t* num_entries;  // [1]

  LARGEOUT_DEVICE void operator()(int64_t i) const {
    const int64_t total = num_buckets == 0 ? 0 : ends[num_buckets - 1];
    if (i == 0) *num_entries = total;
    if (total == 0) {
      pool[i] = -1;
      return;
    }
    const int64_t start = StartOfDraws(SeedAt(seed), total);
    const int64_t entry = EntryOfDraw(i, start, total, num_sampled);
    const int64_t at = BucketWith(entry);
    const Bucket bucket = BucketOfBatch(tables, queries, at);
    const int64_t id = bucket.ids[bucket.size - (ends[at] - entry)];
    pool[i] = 0 <= id && id < tables.num_classes ? id : -1;
  }

 private:
  // The first bucket whose end is after the entry.
  LARGEOUT_DEVICE int64_t BucketWith(int64_t entry) const {
    int64_t first = 0, last = num_buckets - 1;
    while (first < last) {
      const int64_t middle = first + (last - first) / 2;
      if (ends[middle] <= entry) {
        first = middle + 1;
      } else {
        last = middle;
      }
    }
    return first;
  }
};

}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_LSH_POOL_BODY_H_
