// Launches on a GPU, for launch.cuh.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_DEVICE_LAUNCH_CUH_
#define LARGEOUT_CUSTOM_OPS_CUDA_DEVICE_LAUNCH_CUH_

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "custom_ops/core/base/rounding.h"
#include "custom_ops/cuda/block.h"
#include "custom_ops/cuda/stream.h"

namespace largeout {
namespace cuda {

inline constexpr int kThreads = 256;
inline constexpr int64_t kMostBlocks = int64_t{1} << 20;

template <class Body>
__global__ void ForEachKernel(int64_t total, Body body) {
  const int64_t step = int64_t{kThreads} * gridDim.x;
#pragma unroll 1  // it mostly runs once; unrolling would add a division to count the iterations
  for (int64_t i = int64_t{kThreads} * blockIdx.x + threadIdx.x; i < total; i += step) {
    body(i);
  }
}

template <class Body>
__global__ void ForEachBlockKernel(Body body) {
  extern __shared__ __align__(16) char shared[];
  body(DeviceBlock(), shared);
}

// Calls body(i) for 0 <= i < total, with one thread per i.
template <class Body>
Status ForEach(int64_t total, const Body& body, Stream stream) {
  if (total <= 0) return kOk;
  const int64_t blocks = std::min(CeilDiv(total, kThreads), kMostBlocks);
  ForEachKernel<<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(total, body);
  return cudaGetLastError();
}

// Calls body(block, shared) once per block of `threads` threads. `shared` points to
// `shared_bytes` of shared memory. A body loops over its items with a stride of num_blocks().
template <class Body>
Status ForEachBlock(int64_t blocks, int threads, int shared_bytes, const Body& body,
                    Stream stream) {
  if (blocks <= 0) return kOk;
  const auto grid = static_cast<unsigned>(std::min(blocks, kMostBlocks));
  constexpr auto kernel = ForEachBlockKernel<Body>;
  if (shared_bytes > 48 * 1024) {
    const cudaError_t status =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
    if (status != cudaSuccess) return status;
  }
  kernel<<<grid, threads, shared_bytes, stream>>>(body);
  return cudaGetLastError();
}

}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_DEVICE_LAUNCH_CUH_
