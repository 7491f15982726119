// Blocks of threads whose algorithms also run on the host.
//
// The body of a kernel is a LARGEOUT_DEVICE function of a block. It consists of phases. A phase
// is ForEachThread(work): when it returns, all threads have run `work` and see each other's
// writes to shared memory. A PerThread holds a value that a thread keeps from one phase to the
// next. On the device, ForEachThread runs the work of one thread, followed by a barrier. On the
// host, where the emulated GPU runs the same body, it is a loop over the threads.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_BLOCK_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_BLOCK_H_

#include <cstdint>

#ifdef __CUDACC__
#define LARGEOUT_DEVICE __device__  // unlike LARGEOUT_HOST_DEVICE, not for core
#else
#define LARGEOUT_DEVICE
#include <vector>
#endif

namespace largeout {
namespace cuda {

#ifdef __CUDACC__

// The block of the running thread, in a one-dimensional grid.
class DeviceBlock {
 public:
  template <class T>
  class PerThread {
   public:
    __device__ explicit PerThread(const DeviceBlock&) : value_() {}
    __device__ T& operator[](int) { return value_; }

   private:
    T value_;
  };

  __device__ int64_t index() const { return blockIdx.x; }
  __device__ int64_t num_blocks() const { return gridDim.x; }
  __device__ int size() const { return static_cast<int>(blockDim.x); }

  template <class Work>
  __device__ void ForEachThread(const Work& work) const {
    work(static_cast<int>(threadIdx.x));
    __syncthreads();
  }
};

#else  // __CUDACC__

// A block of `size` threads, run by one host thread. The order of the threads changes from
// phase to phase, because the result of a phase must not depend on it.
class HostBlock {
 public:
  // A value for each thread.
  template <class T>
  class PerThread {
   public:
    explicit PerThread(const HostBlock& block) : values_(block.size()) {}
    T& operator[](int thread) { return values_[thread]; }

   private:
    std::vector<T> values_;
  };

  HostBlock(int64_t index, int64_t num_blocks, int size)
      : index_(index), num_blocks_(num_blocks), size_(size) {}

  int64_t index() const { return index_; }
  int64_t num_blocks() const { return num_blocks_; }
  int size() const { return size_; }

  template <class Work>
  void ForEachThread(const Work& work) const {
    const int first = static_cast<int>(num_phases_ * int64_t{37} % size_);
    const bool falling = num_phases_++ % 2 == 0;
    for (int i = 0; i < size_; ++i) {
      const int thread = (first + i) % size_;
      work(falling ? size_ - 1 - thread : thread);
    }
  }

 private:
  const int64_t index_;
  const int64_t num_blocks_;
  const int size_;
  mutable int64_t num_phases_ = 0;
};

#endif  // __CUDACC__

}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_BLOCK_H_
