// The thread bodies of the table build (lsh_tables.h).

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_LSH_TABLES_BODY_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_LSH_TABLES_BODY_H_

#include <cstdint>

#include "custom_ops/core/lsh/lsh_tables.h"
#include "custom_ops/cuda/block.h"
#include "custom_ops/cuda/block_sums.h"

namespace largeout {
namespace cuda {

// ids[i] = i, the input of the sort.
struct NumberRows {
  int32_t* ids;

  LARGEOUT_DEVICE void operator()(int64_t i) const { ids[i] = static_cast<int32_t>(i); }
};

// offsets[bucket] = how many of the sorted codes are less than `bucket`.
struct FindOffsets {
  const uint32_t* sorted;  // [num_rows]
  int64_t num_rows;
  int32_t* offsets;  // [num_buckets + 1]

  LARGEOUT_DEVICE void operator()(int64_t bucket) const {
    int64_t first = 0, last = num_rows;
    while (first < last) {
      const int64_t middle = first + (last - first) / 2;
      if (sorted[middle] < static_cast<uint64_t>(bucket)) {
        first = middle + 1;
      } else {
        last = middle;
      }
    }
    offsets[bucket] = static_cast<int32_t>(first);
  }
};

inline constexpr int kFreshShareThreads = 256;  // a power of two

// Computes FreshShare. Runs on one block.
struct FindFreshShare {
  LshTables tables;
  const int32_t* codes;    // [num_rows, num_tables]
  const int64_t* row_ids;  // [num_rows]
  int64_t num_rows;
  float* share;

  static constexpr int kSharedBytes = kFreshShareThreads * sizeof(int64_t);

  template <class Block>
  LARGEOUT_DEVICE void operator()(const Block& block, char* shared) const {
    auto* counts = reinterpret_cast<int64_t*>(shared);
    const int64_t size = num_rows * tables.num_tables;
    block.ForEachThread([&](int t) {
      counts[t] = 0;
      for (int64_t i = t; i < size; i += block.size()) {
        counts[t] += Holds(BucketOfCode(tables, i, codes[i]), row_ids[i / tables.num_tables]);
      }
    });
    const int64_t fresh = SumOf(block, counts);
    block.ForEachThread([&](int t) {
      if (t == 0) *share = ShareOf(fresh, size);
    });
  }
};

}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_LSH_TABLES_BODY_H_
