// Launches the kernels of row_sums.h.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_ROW_SUMS_LAUNCH_CUH_
#define LARGEOUT_CUSTOM_OPS_CUDA_ROW_SUMS_LAUNCH_CUH_

#include "custom_ops/core/base/rounding.h"
#include "custom_ops/cuda/launch.cuh"
#include "custom_ops/cuda/row_sums.h"

namespace largeout {
namespace cuda {

// The number of blocks for `rows` rows.
inline int64_t RowBlocks(int64_t rows) { return CeilDiv(rows, kRowsPerBlock); }

// Sums the whole runs, then launches `body` on blocks of kRowThreads.
template <class Terms, class Body>
Status SumRunsAndRows(const MergedRows& merged, const Terms& terms, int64_t rows,
                      int shared_bytes, const Body& body, Stream stream) {
  const Status status = ForEachBlock(RowBlocks(NumRuns(merged.num_ids)), kRowThreads, 0,
                                     SumRunsBody<Terms>{merged, terms}, stream);
  if (status != kOk) return status;
  return ForEachBlock(RowBlocks(rows), kRowThreads, shared_bytes, body, stream);
}

}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_ROW_SUMS_LAUNCH_CUH_
