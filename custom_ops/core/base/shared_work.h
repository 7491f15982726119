// A loop that several threads share without waiting for a thread that has not started.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_BASE_SHARED_WORK_H_
#define LARGEOUT_CUSTOM_OPS_CORE_BASE_SHARED_WORK_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>

#include "custom_ops/core/base/parallel.h"

namespace largeout {

// Schedules a closure to be run by another thread, now or later.
using Schedule = std::function<void(std::function<void()> closure)>;

// Runs work(begin, end) on blocks of [0, total) and returns when all are done. The calling
// thread and `num_helpers` scheduled closures take the blocks one after another. A helper that
// wakes up late finds few blocks or none; the caller waits only for blocks that a helper has
// started. If `work` throws, the caller gets the first exception. REQUIRES: block >= 1.
void ShareWork(int64_t total, int64_t block, int64_t num_helpers, const Schedule& schedule,
               const std::function<void(int64_t begin, int64_t end)>& work);

// How a loop is shared.
struct WorkShares {
  int64_t block;
  int64_t num_helpers;  // 0: the calling thread does all the work
};

// Returns shares for a loop of this cost on at most `num_threads` threads: one helper for each
// amount of work that justifies waking up a thread, blocks that take some microseconds, and
// several blocks per thread.
WorkShares SharesOf(int64_t total, int64_t cost_per_unit, int64_t num_threads);

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_BASE_SHARED_WORK_H_
