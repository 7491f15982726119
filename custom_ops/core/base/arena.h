// Memory for the matrices of one computation.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_BASE_ARENA_H_
#define LARGEOUT_CUSTOM_OPS_CORE_BASE_ARENA_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "custom_ops/core/base/aligned_array.h"
#include "custom_ops/core/base/rounding.h"

namespace largeout {

// Hands out parts of a single allocation, which the allocator can reuse for the next
// computation of the same size. Many small allocations would be returned to the system and
// cleared by it each time.
class Arena {
 public:
  // size: the number of doubles that will be taken. Taking more makes further allocations.
  explicit Arena(int64_t size) : size_(size) {}

  // The memory of `size` numbers, in doubles.
  template <class Number>
  static constexpr int64_t Doubles(int64_t size) {
    return CeilDiv(size * sizeof(Number), sizeof(double));
  }

  // Returns memory for `size` numbers, uninitialised, aligned to a cache line and valid as long
  // as this object.
  template <class Number = double>
  Number* Take(int64_t size) {
    return reinterpret_cast<Number*>(TakeDoubles(Doubles<Number>(size)));
  }

 private:
  static constexpr int64_t kLineDoubles = 8;

  double* TakeDoubles(int64_t size) {
    size = RoundUp(size, kLineDoubles);
    if (size > left_) {
      left_ = std::max(size, size_);
      blocks_.emplace_back(left_);
      next_ = blocks_.back().get();
    }
    left_ -= size;
    next_ += size;
    return next_ - size;
  }

  const int64_t size_;
  std::vector<AlignedArray<double>> blocks_;
  double* next_ = nullptr;
  int64_t left_ = 0;
};

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_BASE_ARENA_H_
