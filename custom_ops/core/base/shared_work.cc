#include "custom_ops/core/base/shared_work.h"

#include <algorithm>
#include <memory>
#include <new>

#include "custom_ops/core/base/rounding.h"

namespace largeout {
namespace {

// Waking up a thread takes tens of microseconds.
constexpr double kCyclesPerHelper = 100'000;
constexpr double kCyclesPerBlock = 20'000;
constexpr int64_t kBlocksPerThread = 4;
// About as long as a block takes. The caller then rarely has to sleep and wake up again.
constexpr int kSpins = 300;

inline void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

class SharedWork {
 public:
  SharedWork(int64_t total, int64_t block, const std::function<void(int64_t, int64_t)>& work)
      : total_(total), block_(block), work_(work) {}

  void Help() {
    if (!Enter()) return;
    TakeBlocks();
    Leave();
  }

  void TakeBlocks() {
    for (;;) {
      const int64_t begin = next_.fetch_add(block_, std::memory_order_relaxed);
      if (begin >= total_) return;
      thrown_.Catch([&] { work_(begin, std::min(total_, begin + block_)); });
    }
  }

  // Lets no further thread enter, and waits for those that did.
  void Close() {
    std::unique_lock<std::mutex> lock(mutex_);
    closed_ = true;
    lock.unlock();
    for (int i = 0; i < kSpins && num_helping_.load(std::memory_order_acquire) > 0; ++i) {
      Pause();
    }
    lock.lock();
    all_left_.wait(lock, [&] { return num_helping_.load(std::memory_order_acquire) == 0; });
    thrown_.Rethrow();
  }

 private:
  bool Enter() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!closed_) num_helping_.fetch_add(1, std::memory_order_relaxed);
    return !closed_;
  }

  void Leave() {
    const std::lock_guard<std::mutex> lock(mutex_);
    num_helping_.fetch_sub(1, std::memory_order_release);
    all_left_.notify_one();
  }

  const int64_t total_, block_;
  const std::function<void(int64_t, int64_t)>& work_;  // gone once Close has returned
  std::atomic<int64_t> next_{0};
  FirstException thrown_;
  std::mutex mutex_;
  std::condition_variable all_left_;
  std::atomic<int64_t> num_helping_{0};
  bool closed_ = false;
};

}  // namespace

void ShareWork(int64_t total, int64_t block, int64_t num_helpers, const Schedule& schedule,
               const std::function<void(int64_t begin, int64_t end)>& work) {
  // Shared with the helpers, which may run only after all work is done.
  const auto shared = std::make_shared<SharedWork>(total, block, work);
  try {
    for (int64_t i = 0; i < num_helpers; ++i) schedule([shared] { shared->Help(); });
  } catch (const std::bad_alloc&) {
    // Fewer helpers can do the work as well.
  }
  shared->TakeBlocks();
  shared->Close();
}

WorkShares SharesOf(int64_t total, int64_t cost_per_unit, int64_t num_threads) {
  // Doubles do not overflow.
  const double unit = static_cast<double>(std::max<int64_t>(cost_per_unit, 1));
  const double cost = static_cast<double>(total) * unit;
  const auto paid = static_cast<int64_t>(std::min(cost / kCyclesPerHelper, 1e6));
  const int64_t num_helpers = std::min({num_threads - 1, paid, total - 1});
  if (num_helpers < 1) return {std::max<int64_t>(total, 1), 0};
  const auto least = static_cast<int64_t>(std::min(kCyclesPerBlock / unit, 1e18)) + 1;
  const int64_t even = CeilDiv(total, kBlocksPerThread * (num_helpers + 1));
  return {std::min(std::max(least, even), CeilDiv(total, num_helpers + 1)), num_helpers};
}

}  // namespace largeout
