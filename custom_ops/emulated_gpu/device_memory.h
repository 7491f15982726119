// The memory of the emulated GPU. Only kernels and copies can access it.

#ifndef LARGEOUT_CUSTOM_OPS_EMULATED_GPU_DEVICE_MEMORY_H_
#define LARGEOUT_CUSTOM_OPS_EMULATED_GPU_DEVICE_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

namespace largeout {
namespace emulated_gpu {

class DeviceMemory {
 public:
  // The instance that all threads use. It is never destroyed, because TensorFlow frees tensors
  // while the process exits.
  static DeviceMemory& Get();

  // Returns memory that is aligned to 256 bytes, filled with arbitrary bytes, and followed by a
  // page that is always protected. Returns nullptr if there is not enough memory.
  void* Allocate(size_t bytes);

  // Returns whether `memory` came from Allocate. Aborts if the bytes after the allocation were
  // written.
  bool Free(void* memory);

  bool Contains(const void* memory, int64_t bytes);

  // The memory is accessible from the first Open to the last Close.
  void Open();
  void Close();

 private:
  struct Allocation {
    char* pages;        // the result of mmap
    size_t open_bytes;  // starting at `pages`; a page that is always protected follows
    size_t bytes;       // the requested size
  };

  void Protect(const Allocation& allocation, bool open);

  std::mutex mutex_;
  std::map<const char*, Allocation> allocations_;  // by the address that Allocate returned
  int num_open_ = 0;
};

}  // namespace emulated_gpu
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_EMULATED_GPU_DEVICE_MEMORY_H_
