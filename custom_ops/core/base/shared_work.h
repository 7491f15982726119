// A loop that several threads share, where none waits for one that has not begun.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_BASE_SHARED_WORK_H_
#define LARGEOUT_CUSTOM_OPS_CORE_BASE_SHARED_WORK_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>

#include "custom_ops/core/base/parallel.h"

namespace largeout {

// Has the closure run by another thread, soon or late.
using Schedule = std::function<void(std::function<void()> closure)>;

// Runs work(begin, end) on blocks of [0, total) that the calling thread and `num_helpers`
// scheduled closures take one after another, and returns when all are done. A thread that wakes
// up late finds less to do, or nothing: only for what it has in hand does the caller wait. What
// `work` throws first reaches the caller. REQUIRES: block >= 1.
void ShareWork(int64_t total, int64_t block, int64_t num_helpers, const Schedule& schedule,
               const std::function<void(int64_t begin, int64_t end)>& work);

// How a loop is shared.
struct WorkShares {
  int64_t block;
  int64_t num_helpers;  // 0: the calling thread does it alone
};

// For a loop of that cost on at most `num_threads` threads: a helper for each stretch of work
// that pays for waking it up, blocks of some microseconds, and several for each thread.
WorkShares SharesOf(int64_t total, int64_t cost_per_unit, int64_t num_threads);

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_BASE_SHARED_WORK_H_
