// Hashes of dense rows on the GPU: the codes and values of core/lsh/lsh_hash.h, all of them
// equal to the CPU's.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_LSH_HASH_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_LSH_HASH_H_

#include <cstdint>

#include "custom_ops/core/lsh/lsh_hash.h"
#include "custom_ops/cuda/stream.h"

namespace largeout {
namespace cuda {

// Where the bucket of row r in table t goes: codes[r * row_stride + t * table_stride], in the
// last table last_table[r * row_stride] if that is given.
struct HashCodes {
  int32_t* codes;
  int64_t row_stride;
  int64_t table_stride;
  int32_t* last_table = nullptr;
};

// What HashRows and HashValues need: 0 where a row fits into shared memory.
int64_t HashScratchBytes(const HashFamily& family);

// rows: [num_rows, family.dim]. family.functions are on the device and need not be valid:
// coordinates that there are not take no part.
// REQUIRES: HashFamilyIsValid(family).
Status HashRows(const HashFamily& family, const float* rows, int64_t num_rows,
                const HashCodes& codes, void* scratch, Stream stream);

// values: [num_rows, num_tables, num_hashes].
Status HashValues(const HashFamily& family, const float* rows, int64_t num_rows,
                  int32_t* values, void* scratch, Stream stream);

}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_LSH_HASH_H_
