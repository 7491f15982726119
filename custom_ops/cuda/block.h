// Blocks of threads whose algorithms also run on the host.
//
// A kernel's body is a LARGEOUT_DEVICE function of a block that goes in phases: each
// phase is ForEachThread(work), after which all threads have done their work and see
// each other's writes to shared memory. What a thread keeps from phase to phase
// is a PerThread. On the device that is one thread and a barrier; on the host,
// where the emulated GPU runs the same body, a loop over the threads.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_BLOCK_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_BLOCK_H_

#include <cstdint>

#ifdef __CUDACC__
#define LARGEOUT_DEVICE __device__  // bodies and what they call, beside formulas of core
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

// A block of `size` threads that one host thread goes through, in an order that changes from
// phase to phase: what a phase does must not depend on it.
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
