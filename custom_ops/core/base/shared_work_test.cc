#include "custom_ops/core/base/shared_work.h"

#include <algorithm>
#include <new>
#include <thread>
#include <vector>

#include "custom_ops/core/base/testing.h"

namespace largeout {
namespace {

// Runs each closure on its own thread, or keeps it for later.
class Helpers {
 public:
  ~Helpers() { Join(); }

  Schedule AtOnce() {
    return [this](std::function<void()> closure) { threads_.emplace_back(std::move(closure)); };
  }
  Schedule Kept() {
    return [this](std::function<void()> closure) { kept_.push_back(std::move(closure)); };
  }
  void RunKept() {
    for (const auto& closure : kept_) closure();
  }
  void Join() {
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

 private:
  std::vector<std::thread> threads_;
  std::vector<std::function<void()>> kept_;
};

TEST(EachUnitIsDoneOnceOnAnyNumberOfThreads) {
  for (int64_t total : {0, 1, 7, 1000}) {
    for (int64_t block : {1, 3, 2000}) {
      for (int64_t num_helpers : {0, 1, 5}) {
        Helpers helpers;
        std::vector<std::atomic<int>> times(total);
        ShareWork(total, block, num_helpers, helpers.AtOnce(), [&](int64_t begin, int64_t end) {
          EXPECT_LE(end - begin, block);
          for (int64_t i = begin; i < end; ++i) ++times[i];
        });
        for (const auto& count : times) EXPECT_EQ(count.load(), 1);
      }
    }
  }
}

TEST(TheCallerWaitsForStartedBlocks) {
  for (int repeat = 0; repeat < 20; ++repeat) {
    Helpers helpers;
    std::vector<int> done(4, 0);
    const auto caller = std::this_thread::get_id();
    ShareWork(4, 1, 3, helpers.AtOnce(), [&](int64_t begin, int64_t) {
      if (std::this_thread::get_id() != caller) {
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      }
      done[begin] = 1;
    });
    EXPECT_EQ(std::count(done.begin(), done.end(), 1), 4);
  }
}

TEST(TheCallerDoesNotWaitForLateHelpers) {
  Helpers helpers;
  {
    std::vector<int> times(10, 0);
    ShareWork(10, 2, 3, helpers.Kept(), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) ++times[i];
    });
    EXPECT_EQ(std::count(times.begin(), times.end(), 1), 10);
  }
  helpers.RunKept();  // `times` and the work are gone
}

TEST(ExceptionsReachTheCaller) {
  for (int64_t num_helpers : {0, 3}) {
    Helpers helpers;
    bool caught = false;
    try {
      ShareWork(100, 1, num_helpers, helpers.AtOnce(), [](int64_t begin, int64_t) {
        if (begin == 50) throw std::bad_alloc();
      });
    } catch (const std::bad_alloc&) {
      caught = true;
    }
    EXPECT_TRUE(caught);
  }
}

TEST(WithoutMemoryForHelpersTheCallerDoesAllWork) {
  int64_t done = 0;
  const auto schedule = [](std::function<void()>) { throw std::bad_alloc(); };
  ShareWork(9, 2, 3, schedule, [&](int64_t begin, int64_t end) { done += end - begin; });
  EXPECT_EQ(done, 9);
}

TEST(ShortLoopsAreNotSharedAndLongOnesHaveSeveralBlocksPerThread) {
  EXPECT_EQ(SharesOf(0, 1000, 8).num_helpers, 0);
  EXPECT_EQ(SharesOf(1, int64_t{1} << 62, 8).num_helpers, 0);
  EXPECT_EQ(SharesOf(1000, 50, 8).num_helpers, 0);
  EXPECT_EQ(SharesOf(1000, 1000, 1).num_helpers, 0);
  EXPECT_EQ(SharesOf(1000, 350, 8).num_helpers, 3);
  EXPECT_EQ(SharesOf(3, 1'000'000, 8).num_helpers, 2);
  EXPECT_EQ(SharesOf(3, 1'000'000, 8).block, 1);
  const WorkShares huge = SharesOf(int64_t{1} << 62, int64_t{1} << 62, 8);
  EXPECT_EQ(huge.num_helpers, 7);
  EXPECT_EQ(huge.block, (int64_t{1} << 62) / 32);
}

}  // namespace
}  // namespace largeout
