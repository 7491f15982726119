// cub::DeviceScan for the emulated GPU.

#ifndef LARGEOUT_CUSTOM_OPS_EMULATED_GPU_CUB_DEVICE_DEVICE_SCAN_CUH_
#define LARGEOUT_CUSTOM_OPS_EMULATED_GPU_CUB_DEVICE_DEVICE_SCAN_CUH_

#include <numeric>
#include <vector>

#include "custom_ops/emulated_gpu/cub/device/temporary_storage.h"

namespace cub {

struct DeviceScan {
  template <class From, class To>
  static cudaError_t InclusiveSum(void* storage, size_t& storage_bytes, const From* from,
                                  To* to, int count, cudaStream_t) {
    if (storage == nullptr) return AskForStorage(count, &storage_bytes);
    const cudaError_t status =
        CheckStorage(storage, storage_bytes, count,
                     {{from, int64_t{count} * static_cast<int64_t>(sizeof(From))},
                      {to, int64_t{count} * static_cast<int64_t>(sizeof(To))}});
    if (status != cudaSuccess) return status;
    const largeout::emulated_gpu::Access access;
    const std::vector<From> old(from, from + count);
    SpoilStorage(storage, storage_bytes);
    std::partial_sum(old.begin(), old.end(), to);
    return cudaSuccess;
  }
};

}  // namespace cub

#endif  // LARGEOUT_CUSTOM_OPS_EMULATED_GPU_CUB_DEVICE_DEVICE_SCAN_CUH_
