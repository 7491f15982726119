// Groups the positions of equal ids on the GPU, like core/rows/row_merge.h.
//
// The host does not wait for the number of groups, which stays on the device. Arrays have room
// for `num_ids` groups, and later kernels are launched for that many.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_ROW_MERGE_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_ROW_MERGE_H_

#include <cstdint>

#include "custom_ops/cuda/stream.h"

namespace largeout {
namespace cuda {

// Segment s < *num_segments is row ids[s]. Its gradients are at positions[offsets[s]] ..
// positions[offsets[s + 1] - 1] of the input, in input order. All arrays are in device memory.
struct MergedRows {
  int64_t num_ids;        // how many ids were merged, known to the host
  int32_t* num_segments;  // [1]
  int64_t* ids;           // [num_ids]: unique, ascending
  int32_t* offsets;       // [num_ids + 1]
  int32_t* positions;     // [num_ids]
  int32_t* started;       // [num_ids]: how many segments start at or before this place
};

// The bytes of device memory for the result and intermediate values.
int64_t MergeRowsScratchBytes(int64_t num_ids, int64_t num_rows);

// Sorts by id (stable radix sort); the result is deterministic. Ids outside of [0, num_rows)
// are in no segment. REQUIRES: num_ids < 2^31, num_rows >= 0. scratch: MergeRowsScratchBytes,
// aligned to 256 bytes; it holds `merged` afterwards.
Status MergeRows(const int64_t* ids, int64_t num_ids, int64_t num_rows, void* scratch,
                 MergedRows* merged, Stream stream);

}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_ROW_MERGE_H_
