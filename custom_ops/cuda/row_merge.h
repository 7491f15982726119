// Groups the positions of equal ids on the GPU, like core/rows/row_merge.h.
//
// The host does not wait for the number of groups, which stays on the device. Arrays have room
// for `num_ids` groups, and later kernels are launched for that many.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_ROW_MERGE_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_ROW_MERGE_H_

#include <cstdint>

#include "custom_ops/core/base/host_device.h"
#include "custom_ops/core/rows/row_runs.h"
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
  float* run_sums;        // [NumRuns(num_ids), width]: for row_sums.h
};

// The largest number of whole runs of the segments of `num_ids` ids.
LARGEOUT_HOST_DEVICE inline int64_t NumRuns(int64_t num_ids) { return num_ids / kRunLength; }

// The bytes of device memory for the result and intermediate values. width: the number of
// columns of the gradients.
int64_t MergeRowsScratchBytes(int64_t num_ids, int64_t num_rows, int64_t width);

// Sorts by id (stable radix sort); the result is deterministic. Ids outside of [0, num_rows)
// are in no segment. REQUIRES: num_ids < 2^31, num_rows >= 0. Index: int32_t or int64_t.
// scratch: MergeRowsScratchBytes, aligned to 256 bytes; it holds `merged` afterwards.
template <class Index>
Status MergeRows(const Index* ids, int64_t num_ids, int64_t num_rows, int64_t width,
                 void* scratch, MergedRows* merged, Stream stream);

}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_ROW_MERGE_H_
