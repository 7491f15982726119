// The memory of the emulated GPU: closed to the program but for kernels and copies.

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
  // What all threads use. Never destroyed: TensorFlow frees tensors while it exits.
  static DeviceMemory& Get();

  // Aligned to 256 bytes, filled with rubbish, followed by memory that is never open.
  // Returns nullptr if there is not as much.
  void* Allocate(size_t bytes);

  // Whether `memory` came from Allocate. Aborts if what follows the allocation was written.
  bool Free(void* memory);

  bool Contains(const void* memory, int64_t bytes);

  // Open from the first Open to the last Close.
  void Open();
  void Close();

 private:
  struct Allocation {
    char* pages;        // what mmap returned
    size_t open_bytes;  // from `pages` on; a page that stays closed follows
    size_t bytes;       // what was asked for
  };

  void Protect(const Allocation& allocation, bool open);

  std::mutex mutex_;
  std::map<const char*, Allocation> allocations_;  // by the address that Allocate returned
  int num_open_ = 0;
};

}  // namespace emulated_gpu
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_EMULATED_GPU_DEVICE_MEMORY_H_
