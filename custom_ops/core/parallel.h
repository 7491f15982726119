// How core code runs in parallel: the caller passes a runner, so that core
// knows no thread pool. Kernels pass TensorFlow's intra-op pool, tests a loop.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_PARALLEL_H_
#define LARGEOUT_CUSTOM_OPS_CORE_PARALLEL_H_

#include <cstdint>
#include <functional>

namespace largeout {

// Calls work(begin, end) on disjoint ranges that cover [0, total), perhaps
// from several threads at once, and returns when all are done.
// `cost_per_unit` is the estimated cost of one unit in cycles.
using ParallelFor =
    std::function<void(int64_t total, int64_t cost_per_unit,
                       const std::function<void(int64_t begin, int64_t end)>& work)>;

// Runs everything on the calling thread.
inline void SerialFor(int64_t total, int64_t /*cost_per_unit*/,
                      const std::function<void(int64_t, int64_t)>& work) {
  if (total > 0) work(0, total);
}

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_PARALLEL_H_
