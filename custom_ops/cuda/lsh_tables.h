// Hash tables on the GPU, equal to those of core/lsh/lsh_tables.h.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_LSH_TABLES_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_LSH_TABLES_H_

#include <cstdint>

#include "custom_ops/core/lsh/lsh_hash.h"
#include "custom_ops/core/lsh/lsh_tables.h"
#include "custom_ops/cuda/stream.h"

namespace largeout {
namespace cuda {

// O(num_rows): the scratch of one table.
int64_t BuildLshTablesScratchBytes(const HashFamily& family, int64_t num_rows);

// Hashes rows [num_rows, family.dim] and sorts them into offsets [num_tables, 2^bits + 1] and
// ids [num_tables, num_rows], which are overwritten. The ids of a bucket increase. The tables
// are built one after the other, by radix sort. REQUIRES: HashFamilyIsValid(family); num_rows <
// 2^31; family.functions are on the device.
Status BuildLshTables(const HashFamily& family, const float* rows, int64_t num_rows,
                      int32_t* offsets, int32_t* ids, void* scratch, Stream stream);

// *share = the share of the checked entries that core's CountFreshEntries counts; 1 if there
// are no entries. Meant for a few thousand entries, because it runs on one block.
Status FreshShare(const LshTables& tables, const int32_t* codes, const int64_t* row_ids,
                  int64_t num_rows, float* share, Stream stream);

}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_LSH_TABLES_H_
