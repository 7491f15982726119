#include <algorithm>
#include <cub/device/device_scan.cuh>

#include "custom_ops/cuda/launch.cuh"
#include "custom_ops/cuda/lsh_pool.h"
#include "custom_ops/cuda/lsh_pool_body.h"
#include "custom_ops/cuda/memory.h"

namespace largeout {
namespace cuda {
namespace {

// The ends of all buckets of a batch, and the memory that cub needs to compute them.
struct BucketEnds {
  BucketEnds(const LshQueries& queries, Scratch* scratch)
      : size(queries.batch * queries.num_codes), ends(scratch->Take<int64_t>(size)) {
    Sum(nullptr);  // cub computes its memory if it gets none; errors are returned again by the
                   // later call
    cub_bytes = std::max(cub_bytes, size_t{1});
    cub_memory = scratch->Take<char>(static_cast<int64_t>(cub_bytes));
  }

  Status Sum(Stream stream) {
    return cub::DeviceScan::InclusiveSum(cub_memory, cub_bytes, ends, ends,
                                         static_cast<int>(size), stream);
  }

  const int64_t size;
  int64_t* const ends;
  void* cub_memory = nullptr;
  size_t cub_bytes = 0;
};

}  // namespace

int64_t DrawEntriesScratchBytes(const LshQueries& queries) {
  Scratch scratch(nullptr);
  const BucketEnds ends(queries, &scratch);
  return scratch.bytes();
}

Status DrawEntries(const LshTables& tables, const LshQueries& queries, int64_t num_sampled,
                   const int64_t* seed, int64_t* pool, int64_t* num_entries, void* scratch,
                   Stream stream) {
  Scratch parts(scratch);
  BucketEnds buckets(queries, &parts);
  Status status = ForEach(buckets.size, FindSizes{tables, queries, buckets.ends}, stream);
  if (status == kOk && buckets.size > 0) status = buckets.Sum(stream);
  if (status != kOk) return status;
  return ForEach(num_sampled,
                 DrawEntry{tables, queries, buckets.ends, buckets.size, num_sampled, seed, pool,
                           num_entries},
                 stream);
}

}  // namespace cuda
}  // namespace largeout
