// The launches of custom_ops/cuda/launch.cuh on the emulated GPU, for g++.

#ifndef LARGEOUT_CUSTOM_OPS_EMULATED_GPU_EMULATED_LAUNCH_H_
#define LARGEOUT_CUSTOM_OPS_EMULATED_GPU_EMULATED_LAUNCH_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "custom_ops/cuda/block.h"
#include "custom_ops/cuda/stream.h"
#include "custom_ops/emulated_gpu/kernel.h"

namespace largeout {
namespace cuda {

inline constexpr int kThreads = 256;
// Fewer blocks than on a GPU, so that tests cover blocks that process several items.
inline constexpr int64_t kMostBlocks = 7;

// Runs the last item first.
template <class Body>
Status ForEach(int64_t total, const Body& body, Stream) {
  if (total <= 0) return kOk;
  return emulated_gpu::Launch(kThreads, 0, body, [&] {
    for (int64_t i = total - 1; i >= 0; --i) body(i);
  });
}

// Runs the last block first, because no block may depend on another. Shared memory starts with
// arbitrary bytes, as on a GPU.
template <class Body>
Status ForEachBlock(int64_t blocks, int threads, int shared_bytes, const Body& body, Stream) {
  if (blocks <= 0) return kOk;
  blocks = std::min(blocks, kMostBlocks);
  return emulated_gpu::Launch(threads, shared_bytes, body, [&] {
    for (int64_t index = blocks - 1; index >= 0; --index) {
      std::vector<std::max_align_t> shared(shared_bytes / sizeof(std::max_align_t) + 1);
      char* const bytes = reinterpret_cast<char*>(shared.data());
      std::fill_n(bytes, shared_bytes, static_cast<char>(0xAB));
      body(HostBlock(index, blocks, threads), bytes);
    }
  });
}

}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_EMULATED_GPU_EMULATED_LAUNCH_H_
