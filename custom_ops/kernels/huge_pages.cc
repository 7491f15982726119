#include "custom_ops/kernels/huge_pages.h"

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include <algorithm>

namespace largeout {
namespace {

// The processor's caches of page tables cover less.
constexpr int64_t kLeast = int64_t{16} << 20;
constexpr size_t kMostAsked = 64;

#if defined(__linux__)
constexpr int64_t kPage = int64_t{2} << 20;
constexpr int kMoveNow = 25;         // MADV_COLLAPSE, which many C libraries do not define yet
constexpr int kRefusalsInARow = 16;  // an older kernel, or no free huge pages

void Move(char* page, char* end) {
  for (int refusals = 0; page < end && refusals < kRefusalsInARow; page += kPage) {
    refusals = madvise(page, kPage, kMoveNow) == 0 ? 0 : refusals + 1;
  }
}

void UseHugePages(const void* data, int64_t bytes) {
  const auto address = reinterpret_cast<uintptr_t>(data);
  const uintptr_t begin = (address + kPage - 1) / kPage * kPage;
  const uintptr_t end = (address + bytes) / kPage * kPage;
  char* const first = reinterpret_cast<char*>(begin);
  if (madvise(first, end - begin, MADV_HUGEPAGE) == 0) {
    Move(first, reinterpret_cast<char*>(end));
  }
}
#else
void UseHugePages(const void*, int64_t) {}
#endif

}  // namespace

void HugePages::Ask(const tensorflow::Tensor& tensor) {
  const int64_t bytes = tensor.TotalBytes();
  if (bytes >= kLeast && IsNew(tensor.data())) UseHugePages(tensor.data(), bytes);
}

bool HugePages::IsNew(const void* data) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (std::find(asked_.begin(), asked_.end(), data) != asked_.end()) return false;
  if (asked_.size() == kMostAsked) asked_.clear();
  asked_.push_back(data);
  return true;
}

}  // namespace largeout
