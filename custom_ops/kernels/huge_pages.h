// Puts the memory of large variables in pages of 2 MiB, so that random accesses to rows need no
// walk of the page tables.

#ifndef LARGEOUT_CUSTOM_OPS_KERNELS_HUGE_PAGES_H_
#define LARGEOUT_CUSTOM_OPS_KERNELS_HUGE_PAGES_H_

#include <cstdint>
#include <mutex>
#include <vector>

#include "tensorflow/core/framework/tensor.h"

namespace largeout {

// Kept by an op that updates rows: the memory for which it has requested huge pages. Linux is
// asked to keep the memory in such pages, and to move it there immediately, which takes as long
// as a copy. If it cannot (before 6.1), it does so in the background. If huge pages are
// unavailable, nothing happens.
class HugePages {
 public:
  // Requests huge pages for a tensor of 16 MiB or more, once. If the variable gets other
  // memory, for example when it is restored, requests them again. Call it while the variable is
  // locked, so that its memory stays.
  void Ask(const tensorflow::Tensor& tensor);

 private:
  bool IsNew(const void* data);

  std::mutex mutex_;
  std::vector<const void*> asked_;
};

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_KERNELS_HUGE_PAGES_H_
