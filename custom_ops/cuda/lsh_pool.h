// Chooses one set of classes for a whole batch on the GPU; equal to core/lsh/lsh_pool.h.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_LSH_POOL_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_LSH_POOL_H_

#include <cstdint>

#include "custom_ops/core/lsh/lsh_query.h"
#include "custom_ops/cuda/stream.h"

namespace largeout {
namespace cuda {

// O(batch * num_codes).
int64_t DrawEntriesScratchBytes(const LshQueries& queries);

// pool [num_sampled] and *num_entries as in core. Codes that are not buckets are skipped. A
// drawn entry that is not a class gives -1. All arrays are on the device. seed: int64 [2].
// REQUIRES: num_sampled >= 1; batch * num_codes < 2^31.
Status DrawEntries(const LshTables& tables, const LshQueries& queries, int64_t num_sampled,
                   const int64_t* seed, int64_t* pool, int64_t* num_entries, void* scratch,
                   Stream stream);

}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_LSH_POOL_H_
