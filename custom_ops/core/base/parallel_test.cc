#include "custom_ops/core/base/parallel.h"

#include <new>
#include <stdexcept>
#include <string>
#include <thread>

#include "custom_ops/core/base/testing.h"

namespace largeout {
namespace {

TEST(AnExceptionOfAThreadReachesTheWaitingThread) {
  FirstException thrown;
  std::thread thread([&] { thrown.Catch([] { throw std::bad_alloc(); }); });
  thread.join();
  bool caught = false;
  try {
    thrown.Rethrow();
  } catch (const std::bad_alloc&) {
    caught = true;
  }
  EXPECT_TRUE(caught);
}

TEST(OnlyTheFirstExceptionCountsAndNothingRunsAfterIt) {
  FirstException thrown;
  int runs = 0;
  thrown.Rethrow();  // nothing yet
  thrown.Catch([&] { ++runs; });
  thrown.Catch([&] { throw std::length_error("first"); });
  thrown.Catch([&] { ++runs; });
  EXPECT_EQ(runs, 1);
  std::string text;
  try {
    thrown.Rethrow();
  } catch (const std::length_error& error) {
    text = error.what();
  }
  EXPECT_EQ(text, "first");
}

}  // namespace
}  // namespace largeout
