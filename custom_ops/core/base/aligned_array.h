// Memory for vectorised code.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_BASE_ALIGNED_ARRAY_H_
#define LARGEOUT_CUSTOM_OPS_CORE_BASE_ALIGNED_ARRAY_H_

#include <cstdint>
#include <memory>

namespace largeout {

// Uninitialised memory for `size` numbers that starts at a cache line.
template <class Number>
class AlignedArray {
 public:
  explicit AlignedArray(int64_t size)
      : memory_(new Number[size + kLineNumbers]), data_(memory_.get()) {
    while (reinterpret_cast<uintptr_t>(data_) % kLineBytes != 0) ++data_;
  }
  Number* get() const { return data_; }

 private:
  static constexpr int64_t kLineBytes = 64;
  static constexpr int64_t kLineNumbers = kLineBytes / sizeof(Number);
  std::unique_ptr<Number[]> memory_;
  Number* data_;
};

using AlignedFloats = AlignedArray<float>;

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_BASE_ALIGNED_ARRAY_H_
