// What custom_ops/cuda/launch.cuh is for g++: launches on the emulated GPU.

#ifndef LARGEOUT_CUSTOM_OPS_EMULATED_GPU_EMULATED_LAUNCH_H_
#define LARGEOUT_CUSTOM_OPS_EMULATED_GPU_EMULATED_LAUNCH_H_

#include <algorithm>
#include <cstdint>

#include "custom_ops/cuda/host_blocks.h"
#include "custom_ops/cuda/stream.h"
#include "custom_ops/emulated_gpu/kernel.h"

namespace largeout {
namespace cuda {

inline constexpr int kThreads = 256;
// Fewer than on a GPU: blocks must go on to their next items.
inline constexpr int64_t kMostBlocks = 61;

template <class Body>
Status ForEach(int64_t total, const Body& body, Stream) {
  if (total <= 0) return kOk;
  return emulated_gpu::Launch(kThreads, 0, body, [&] { RunItems(total, body); });
}

template <class Body>
Status ForEachBlock(int64_t blocks, int threads, int shared_bytes, const Body& body, Stream) {
  if (blocks <= 0) return kOk;
  return emulated_gpu::Launch(threads, shared_bytes, body, [&] {
    RunBlocks(std::min(blocks, kMostBlocks), threads, shared_bytes, body);
  });
}

}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_EMULATED_GPU_EMULATED_LAUNCH_H_
