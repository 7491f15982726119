// The memory of large variables in pages of 2 MiB: rows that are met at random are then found
// without a walk through the page tables for each.

#ifndef LARGEOUT_CUSTOM_OPS_KERNELS_HUGE_PAGES_H_
#define LARGEOUT_CUSTOM_OPS_KERNELS_HUGE_PAGES_H_

#include <cstdint>
#include <mutex>
#include <vector>

#include "tensorflow/core/framework/tensor.h"

namespace largeout {

// What an op that updates rows keeps: which memory it has asked huge pages for. Linux is asked
// to keep the memory in such pages, and to move it there at once, which takes as long as to
// copy it. Where it cannot (before 6.1) it does so as it finds time; where there are no huge
// pages, or none is free, nothing happens.
class HugePages {
 public:
  // Asks for the memory of a tensor of 16 MiB or more, once: a variable that gets other memory,
  // as when it is restored, is asked for again. While the variable is locked, so that its
  // memory stays.
  void Ask(const tensorflow::Tensor& tensor);

 private:
  bool IsNew(const void* data);

  std::mutex mutex_;
  std::vector<const void*> asked_;
};

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_KERNELS_HUGE_PAGES_H_
