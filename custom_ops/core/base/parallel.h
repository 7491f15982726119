// How core code runs in parallel. The caller passes a runner, so core does not depend on a
// thread pool: kernels pass TensorFlow's intra-op pool, and tests pass a loop.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_BASE_PARALLEL_H_
#define LARGEOUT_CUSTOM_OPS_CORE_BASE_PARALLEL_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <new>
#include <optional>
#include <stdexcept>

namespace largeout {

// Calls work(begin, end) on disjoint ranges that cover [0, total), perhaps from several threads
// at once, and returns when all ranges are done. If `work` throws, the caller gets the first
// exception, and some ranges may be skipped. `cost_per_unit` is the estimated cost of one unit
// in cycles.
using ParallelFor =
    std::function<void(int64_t total, int64_t cost_per_unit,
                       const std::function<void(int64_t begin, int64_t end)>& work)>;

// Runs everything on the calling thread.
inline void SerialFor(int64_t total, int64_t /*cost_per_unit*/,
                      const std::function<void(int64_t, int64_t)>& work) {
  if (total > 0) work(0, total);
}

// Calls work(row) for each row below `rows`, perhaps from several threads at once. `cost` is
// the cost of a row in cycles.
template <class Work>
void ForEachRow(int64_t rows, int64_t cost, const ParallelFor& parallel, const Work& work) {
  parallel(rows, cost, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) work(row);
  });
}

// Keeps the first exception of several threads for the thread that waits for them. Core throws
// std::bad_alloc and, from containers, std::length_error; only these are kept. (A
// std::exception_ptr would keep all, but needs the libstdc++ of g++ 11 at run time.)
class FirstException {
 public:
  // Runs work(), unless an exception was thrown before. May be called from any thread.
  template <class Work>
  void Catch(const Work& work) {
    if (thrown_.load(std::memory_order_relaxed)) return;
    try {
      work();
    } catch (const std::length_error& error) {
      Keep(error);
    } catch (const std::bad_alloc&) {
      Keep(std::nullopt);
    }
  }

  // Throws the exception that Catch stored, if any. REQUIRES: no thread is still in Catch.
  void Rethrow() const {
    if (too_long_) throw *too_long_;
    if (thrown_) throw std::bad_alloc();
  }

 private:
  void Keep(const std::optional<std::length_error>& too_long) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!thrown_) too_long_ = too_long;
    thrown_ = true;
  }

  std::atomic<bool> thrown_{false};
  std::mutex mutex_;
  std::optional<std::length_error> too_long_;
};

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_BASE_PARALLEL_H_
