// Sums over the threads of a block.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_BLOCK_SUMS_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_BLOCK_SUMS_H_

#include <cstdint>

#include "custom_ops/cuda/block.h"

namespace largeout {
namespace cuda {

// numbers[t] becomes the sum of those before it. Returns the sum of all, the same in all
// threads. numbers: shared, one a thread; the phase before has written them.
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

// The sum of numbers [size], the same in all threads. They are overwritten.
// REQUIRES: the block's size is a power of two.
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

}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_BLOCK_SUMS_H_
