// Sums over the threads of a block.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_BLOCK_SUMS_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_BLOCK_SUMS_H_

#include <cstdint>

#include "custom_ops/cuda/block.h"

namespace largeout {
namespace cuda {

#ifdef __CUDACC__

// On the device, a warp sums through its registers, and then each thread adds the sums of the
// few warps of the block.

inline constexpr int kLanes = 32, kMostWarps = 32;
inline constexpr unsigned kAllLanes = 0xffffffffu;

// See the generic version below. REQUIRES: the block's size is a multiple of kLanes.
__device__ inline int64_t SumBefore(const DeviceBlock& block, int64_t* numbers) {
  __shared__ int64_t sums[kMostWarps];
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kLanes;
  const int64_t number = numbers[thread];
  int64_t until = number;  // the sum up to this lane
  for (int step = 1; step < kLanes; step *= 2) {
    const int64_t other = __shfl_up_sync(kAllLanes, until, step);
    if (lane >= step) until += other;
  }
  if (lane == kLanes - 1) sums[thread / kLanes] = until;
  __syncthreads();
  int64_t before = until - number, total = 0;
#pragma unroll 1  // unrolling would take registers that the callers need
  for (int warp = 0; warp < block.size() / kLanes; ++warp) {
    if (warp < thread / kLanes) before += sums[warp];
    total += sums[warp];
  }
  numbers[thread] = before;
  __syncthreads();
  return total;
}

// See the generic version below. Before the next call, write `numbers` in a phase: its barrier
// ensures that all threads have read `sums`.
__device__ inline int64_t SumOf(const DeviceBlock& block, const int64_t* numbers) {
  __shared__ int64_t sums[kMostWarps];
  const int thread = static_cast<int>(threadIdx.x);
  int64_t sum = numbers[thread];
  for (int step = kLanes / 2; step > 0; step /= 2) sum += __shfl_xor_sync(kAllLanes, sum, step);
  if (thread % kLanes == 0) sums[thread / kLanes] = sum;
  __syncthreads();
  int64_t total = 0;
#pragma unroll 1  // unrolling would take registers that the callers need
  for (int warp = 0; warp < block.size() / kLanes; ++warp) total += sums[warp];
  return total;
}

#else  // __CUDACC__

// numbers[t] becomes the sum of the numbers before it. Returns the sum of all numbers, in all
// threads. numbers: in shared memory, one per thread, written in the previous phase.
template <class Block>
LARGEOUT_DEVICE int64_t SumBefore(const Block& block, int64_t* numbers) {
  const int size = block.size();
  typename Block::template PerThread<int64_t> other(block), total(block);
  for (int step = 1; step < size; step *= 2) {
    block.ForEachThread([&](int t) { other[t] = t >= step ? numbers[t - step] : 0; });
    block.ForEachThread([&](int t) { numbers[t] += other[t]; });
  }
  block.ForEachThread([&](int t) {
    total[t] = numbers[size - 1];
    other[t] = t > 0 ? numbers[t - 1] : 0;
  });
  block.ForEachThread([&](int t) { numbers[t] = other[t]; });
  return total[0];
}

// Returns the sum of numbers [size], in all threads. Overwrites `numbers` with undefined
// values. REQUIRES: the block's size is a power of two.
template <class Block>
LARGEOUT_DEVICE int64_t SumOf(const Block& block, int64_t* numbers) {
  typename Block::template PerThread<int64_t> total(block);
  for (int half = block.size() / 2; half > 0; half /= 2) {
    block.ForEachThread([&](int t) {
      if (t < half) numbers[t] += numbers[t + half];
    });
  }
  block.ForEachThread([&](int t) { total[t] = numbers[0]; });
  return total[0];
}

#endif  // __CUDACC__

}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_BLOCK_SUMS_H_
