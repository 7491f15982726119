// Queries of hash tables on the GPU, equal to those of core/lsh/lsh_query.h.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_LSH_QUERY_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_LSH_QUERY_H_

#include <cstdint>

#include "custom_ops/core/lsh/lsh_query.h"
#include "custom_ops/cuda/stream.h"

namespace largeout {
namespace cuda {

// What both need; grows with num_labels + num_sampled, for MostMetClasses with max_lookups
// too, and not with the batch beyond 2048 rows.
int64_t WalkBucketsScratchBytes(const LshQueries& queries, const LshDraw& draw);
int64_t MostMetClassesScratchBytes(const LshQueries& queries, const LshDraw& draw);

// ids [batch, num_sampled] and num_filled [batch] as in core. All arrays are on the device;
// codes that are no bucket, labels and ids in the tables that are no class are passed over.
// A block a row. seed: int64 [2] in device memory; draw.seed is ignored.
// REQUIRES: num_codes <= kMostCodes; draw.max_lookups < 2^31.
Status WalkBuckets(const LshTables& tables, const LshQueries& queries, const LshDraw& draw,
                   const int64_t* seed, int64_t* ids, int32_t* num_filled, void* scratch,
                   Stream stream);
Status MostMetClasses(const LshTables& tables, const LshQueries& queries, const LshDraw& draw,
                      const int64_t* seed, int64_t* ids, int32_t* num_filled, void* scratch,
                      Stream stream);

}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_LSH_QUERY_H_
