// Queries of hash tables on the GPU, equal to those of core/lsh/lsh_query.h.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_LSH_QUERY_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_LSH_QUERY_H_

#include <cstdint>

#include "custom_ops/core/lsh/lsh_query.h"
#include "custom_ops/cuda/stream.h"

namespace largeout {
namespace cuda {

// The bytes of scratch. They grow with num_labels + num_sampled, for MostMetClasses also with
// max_lookups, and with the batch up to 2048 examples.
int64_t WalkBucketsScratchBytes(const LshQueries& queries, const LshDraw& draw);
int64_t MostMetClassesScratchBytes(const LshQueries& queries, const LshDraw& draw);

// ids [batch, num_sampled] and num_filled [batch] as in core. A block processes one example.
// Codes that are not buckets, and labels and table entries that are not classes, are skipped.
// All arrays are on the device. seed: int64 [2]; draw.seed is ignored. REQUIRES: num_codes <=
// kMostCodes; draw.max_lookups < 2^31.
Status WalkBuckets(const LshTables& tables, const LshQueries& queries, const LshDraw& draw,
                   const int64_t* seed, int64_t* ids, int32_t* num_filled, void* scratch,
                   Stream stream);
Status MostMetClasses(const LshTables& tables, const LshQueries& queries, const LshDraw& draw,
                      const int64_t* seed, int64_t* ids, int32_t* num_filled, void* scratch,
                      Stream stream);

}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_LSH_QUERY_H_
