#include "custom_ops/emulated_gpu/device_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "custom_ops/core/base/rounding.h"

namespace largeout {
namespace emulated_gpu {
namespace {

constexpr size_t kAlignment = 256;  // as cudaMalloc guarantees
constexpr unsigned char kRubbish = 0xE7;

size_t PageBytes() {
  static const auto bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

[[noreturn]] void Die(const char* what) {
  std::fprintf(stderr, "emulated GPU: %s\n", what);
  std::abort();
}

}  // namespace

DeviceMemory& DeviceMemory::Get() {
  static auto* const memory = new DeviceMemory;
  return *memory;
}

void* DeviceMemory::Allocate(size_t bytes) {
  // The allocation, rounded up to kAlignment, ends at the protected page, so reads after it
  // crash too.
  const size_t aligned_bytes = RoundUp(bytes, kAlignment);
  const size_t open_bytes = RoundUp(aligned_bytes, PageBytes());
  void* const pages = mmap(nullptr, open_bytes + PageBytes(), PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (pages == MAP_FAILED) return nullptr;
  const Allocation allocation{static_cast<char*>(pages), open_bytes, bytes};
  std::memset(pages, kRubbish, open_bytes);
  if (mprotect(allocation.pages + open_bytes, PageBytes(), PROT_NONE) != 0) Die("mprotect");
  char* const memory = allocation.pages + open_bytes - aligned_bytes;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (num_open_ == 0) Protect(allocation, false);
  allocations_[memory] = allocation;
  return memory;
}

bool DeviceMemory::Free(void* memory) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = allocations_.find(static_cast<char*>(memory));
  if (found == allocations_.end()) return false;
  const Allocation allocation = found->second;
  Protect(allocation, true);
  const auto* const end =
      reinterpret_cast<unsigned char*>(allocation.pages) + allocation.open_bytes;
  const auto* byte = static_cast<unsigned char*>(memory) + allocation.bytes;
  for (; byte < end; ++byte) {
    if (*byte != kRubbish) Die("a kernel wrote after the end of an allocation");
  }
  munmap(allocation.pages, allocation.open_bytes + PageBytes());
  allocations_.erase(found);
  return true;
}

bool DeviceMemory::Contains(const void* memory, int64_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto* const start = static_cast<const char*>(memory);
  const auto next = allocations_.upper_bound(start);
  if (next == allocations_.begin()) return false;
  const auto& [first, allocation] = *std::prev(next);
  return start + bytes <= first + allocation.bytes;
}

void DeviceMemory::Open() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (num_open_++ > 0) return;
  for (const auto& [_, allocation] : allocations_) Protect(allocation, true);
}

void DeviceMemory::Close() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (--num_open_ > 0) return;
  for (const auto& [_, allocation] : allocations_) Protect(allocation, false);
}

void DeviceMemory::Protect(const Allocation& allocation, bool open) {
  const int rights = open ? PROT_READ | PROT_WRITE : PROT_NONE;
  if (mprotect(allocation.pages, allocation.open_bytes, rights) != 0) Die("mprotect");
}

}  // namespace emulated_gpu
}  // namespace largeout
