// Device memory: copies, fills, and the parts of one piece of scratch.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_MEMORY_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_MEMORY_H_

#include <cstddef>
#include <cstdint>

#include "custom_ops/core/base/rounding.h"
#include "custom_ops/cuda/stream.h"

namespace largeout {
namespace cuda {

// Copies from device memory to device memory.
Status CopyBytes(const void* from, int64_t bytes, void* to, Stream stream);

// Sets every byte to `value`.
Status FillBytes(int value, int64_t bytes, void* to, Stream stream);

// Copies from device memory to memory of the host, and waits for it and all that is queued
// before.
Status CopyToHost(const void* from, int64_t bytes, void* to, Stream stream);

// Copies from memory of the host to device memory; has read that when it returns.
Status CopyFromHost(const void* from, int64_t bytes, void* to, Stream stream);

// Hands out parts of one piece of memory, each aligned to kAlignment. Without memory
// it only adds up how much is needed, so that one function, which takes the parts,
// says both where they are and how large the scratch must be.
class Scratch {
 public:
  static constexpr int64_t kAlignment = 256;

  explicit Scratch(void* memory) : memory_(static_cast<char*>(memory)) {}

  template <class T>
  T* Take(int64_t count) {
    char* const part = memory_ == nullptr ? nullptr : memory_ + bytes_;
    const int64_t size = count * static_cast<int64_t>(sizeof(T));
    bytes_ += RoundUp(size, kAlignment);
    return reinterpret_cast<T*>(part);
  }

  // The sum of what was taken.
  int64_t bytes() const { return bytes_; }

 private:
  char* const memory_;
  int64_t bytes_ = 0;
};

}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_MEMORY_H_
