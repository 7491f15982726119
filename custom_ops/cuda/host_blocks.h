// Runs kernel bodies on the host, for X_body_test.cc and the emulated GPU.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_HOST_BLOCKS_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_HOST_BLOCKS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "custom_ops/cuda/block.h"

namespace largeout {
namespace cuda {

// What ForEachBlock does, the last block first: no block may depend on another. Shared
// memory starts as rubbish, as on a GPU.
template <class Body>
void RunBlocks(int64_t blocks, int threads, int64_t shared_bytes, const Body& body) {
  for (int64_t index = blocks - 1; index >= 0; --index) {
    std::vector<std::max_align_t> shared(shared_bytes / sizeof(std::max_align_t) + 1);
    char* const bytes = reinterpret_cast<char*>(shared.data());
    for (int64_t i = 0; i < shared_bytes; ++i) bytes[i] = static_cast<char>(0xAB);
    body(HostBlock(index, blocks, threads), bytes);
  }
}

// What ForEach does, the last item first.
template <class Body>
void RunItems(int64_t total, const Body& body) {
  for (int64_t i = total - 1; i >= 0; --i) body(i);
}

}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_HOST_BLOCKS_H_
