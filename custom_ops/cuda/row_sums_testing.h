// For tests of what takes MergedRows of the GPU: the part that the CPU's have not.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_ROW_SUMS_TESTING_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_ROW_SUMS_TESTING_H_

#include <cstdint>
#include <vector>

#include "custom_ops/core/row_merge.h"

namespace largeout {
namespace cuda {

inline std::vector<int32_t> StartedSegments(const largeout::MergedRows& merged) {
  std::vector<int32_t> started(merged.positions.size());
  for (int64_t s = 0; s < merged.size(); ++s) {
    for (int64_t i = merged.offsets[s]; i < merged.offsets[s + 1]; ++i) {
      started[i] = static_cast<int32_t>(s + 1);
    }
  }
  return started;
}

}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_ROW_SUMS_TESTING_H_
