// Device memory: copies, fills, and parts of one allocation.

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

// Copies from device memory to host memory. Waits for the copy and for all work queued before
// it.
Status CopyToHost(const void* from, int64_t bytes, void* to, Stream stream);

// Copies from host memory to device memory. Returns after the host memory has been read.
Status CopyFromHost(const void* from, int64_t bytes, void* to, Stream stream);

// Divides one allocation into parts, each aligned to kAlignment. Without memory it only adds up
// the sizes. So one function that takes the parts serves both to compute the size of the
// scratch and to locate its parts.
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

  // The total size of the parts taken so far.
  int64_t bytes() const { return bytes_; }

 private:
  char* const memory_;
  int64_t bytes_ = 0;
};

}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_MEMORY_H_
