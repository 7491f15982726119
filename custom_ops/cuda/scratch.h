// Cuts scratch memory into arrays.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_SCRATCH_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_SCRATCH_H_

#include <cstdint>

namespace largeout {
namespace cuda {

// Takes arrays one after the other. Started at null it only counts the bytes, so that
// one function of a feature tells both the size and the places.
class ScratchCutter {
 public:
  explicit ScratchCutter(void* scratch) : scratch_(static_cast<char*>(scratch)) {}

  template <class T>
  T* Take(int64_t size) {
    constexpr int64_t kAlignment = 256;
    char* const at = scratch_ == nullptr ? nullptr : scratch_ + bytes_;
    bytes_ +=
        (size * static_cast<int64_t>(sizeof(T)) + kAlignment - 1) / kAlignment * kAlignment;
    return reinterpret_cast<T*>(at);
  }

  int64_t bytes() const { return bytes_; }

 private:
  char* const scratch_;
  int64_t bytes_ = 0;
};

}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_SCRATCH_H_
