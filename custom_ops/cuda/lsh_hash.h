// Hashes of dense rows on the GPU. Codes are equal to those of core/lsh/lsh_hash.h.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_LSH_HASH_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_LSH_HASH_H_

#include <cstdint>

#include "custom_ops/core/lsh/lsh_hash.h"
#include "custom_ops/cuda/stream.h"

namespace largeout {
namespace cuda {

// The bucket of row r in table t is written to codes[r * row_stride + t * table_stride]. If
// last_table is given, the bucket in the last table is written to last_table[r * row_stride].
struct HashCodes {
  int32_t* codes;
  int64_t row_stride;
  int64_t table_stride;
  int32_t* last_table = nullptr;
};

// The bytes of scratch of HashRows; 0 if rows fit into shared memory.
int64_t HashScratchBytes(const HashFamily& family);

// rows: [num_rows, family.dim]. family.functions are on the device and need not be valid:
// coordinates out of range are ignored. REQUIRES: HashFamilyIsValid(family).
Status HashRows(const HashFamily& family, const float* rows, int64_t num_rows,
                const HashCodes& codes, void* scratch, Stream stream);

}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_LSH_HASH_H_
