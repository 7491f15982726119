// The temporary storage of a cub function. The caller must ask for its size, and the function
// overwrites it.

#ifndef LARGEOUT_CUSTOM_OPS_EMULATED_GPU_CUB_DEVICE_TEMPORARY_STORAGE_H_
#define LARGEOUT_CUSTOM_OPS_EMULATED_GPU_CUB_DEVICE_TEMPORARY_STORAGE_H_

#include <cstring>
#include <initializer_list>
#include <utility>

#include "custom_ops/emulated_gpu/cuda_runtime.h"
#include "custom_ops/emulated_gpu/kernel.h"

namespace cub {

inline size_t StorageFor(int count) { return 8 * static_cast<size_t>(count) + 767; }

inline cudaError_t AskForStorage(int count, size_t* bytes) {
  *bytes = StorageFor(count);
  return cudaSuccess;
}

// Returns an error if the storage is too small, or if an array is not on the device.
inline cudaError_t CheckStorage(const void* storage, size_t bytes, int count,
                                std::initializer_list<std::pair<const void*, int64_t>> arrays) {
  using largeout::emulated_gpu::InDeviceMemory;
  if (bytes < StorageFor(count)) return cudaErrorInvalidValue;
  if (!InDeviceMemory(storage, static_cast<int64_t>(bytes))) return cudaErrorIllegalAddress;
  for (const auto& [array, array_bytes] : arrays) {
    if (!InDeviceMemory(array, array_bytes)) return cudaErrorIllegalAddress;
  }
  return cudaSuccess;
}

inline void SpoilStorage(void* storage, size_t bytes) { std::memset(storage, 0xCD, bytes); }

}  // namespace cub

#endif  // LARGEOUT_CUSTOM_OPS_EMULATED_GPU_CUB_DEVICE_TEMPORARY_STORAGE_H_
