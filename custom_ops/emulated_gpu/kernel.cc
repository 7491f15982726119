#include "custom_ops/emulated_gpu/kernel.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <utility>

#include "custom_ops/emulated_gpu/device_memory.h"

namespace largeout {
namespace emulated_gpu {
namespace {

thread_local cudaError_t last_error = cudaSuccess;

bool IsMapped(uintptr_t address) {
  const auto page_bytes = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  void* const page = reinterpret_cast<void*>(address / page_bytes * page_bytes);
  return msync(page, 1, MS_ASYNC) == 0;
}

// Arguments that are numbers are rarely this large, and if they are, such an address is rarely
// mapped.
bool IsHostAddress(uintptr_t word) {
  constexpr uintptr_t kFirst = uintptr_t{1} << 32, kEnd = uintptr_t{1} << 56;
  return word >= kFirst && word < kEnd && IsMapped(word) &&
         !InDeviceMemory(reinterpret_cast<void*>(word), 0);
}

}  // namespace

cudaError_t Remember(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

cudaError_t TakeLastError() { return std::exchange(last_error, cudaSuccess); }

Access::Access() { DeviceMemory::Get().Open(); }
Access::~Access() { DeviceMemory::Get().Close(); }

bool InDeviceMemory(const void* memory, int64_t bytes) {
  return DeviceMemory::Get().Contains(memory, bytes);
}

cudaError_t CheckWords(const void* words, int64_t bytes) {
  constexpr auto kWordBytes = static_cast<int64_t>(sizeof(uintptr_t));
  for (int64_t at = 0; at + kWordBytes <= bytes; at += kWordBytes) {
    uintptr_t word;
    std::memcpy(&word, static_cast<const char*>(words) + at, sizeof(word));
    if (IsHostAddress(word)) return Remember(cudaErrorIllegalAddress);
  }
  return cudaSuccess;
}

cudaError_t CheckConfiguration(int threads, int64_t shared_bytes) {
  const bool fits = threads >= 1 && threads <= kMostThreads && shared_bytes >= 0 &&
                    shared_bytes <= kMostSharedBytes;
  return fits ? cudaSuccess : Remember(cudaErrorInvalidConfiguration);
}

}  // namespace emulated_gpu
}  // namespace largeout
