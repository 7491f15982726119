// Linked into the test program only.

#include "custom_ops/core/base/testing.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <vector>

#include "custom_ops/core/base/simd_level.h"

namespace largeout {
namespace testing {
namespace {

struct Test {
  const char* file;
  const char* name;
  void (*body)();
};

std::vector<Test>& Tests() {
  static std::vector<Test> tests;
  return tests;
}

bool running_test_failed = false;

bool Passes(const Test& test) {
  running_test_failed = false;
  try {
    test.body();
  } catch (const std::exception& error) {
    Fail(test.file, 0, std::string("exception: ") + error.what());
  }
  if (running_test_failed) std::printf("FAILED %s\n", test.name);
  return !running_test_failed;
}

}  // namespace

bool Register(const char* file, const char* name, void (*body)()) {
  Tests().push_back({file, name, body});
  return true;
}

void Fail(const char* file, int line, const std::string& message) {
  running_test_failed = true;
  std::printf("%s:%d: expected %s\n", file, line, message.c_str());
}

namespace {

void ForTheFirstLevels(int count, const std::function<void()>& body) {
  const char* previous = std::getenv("LARGEOUT_SIMD_LEVEL");
  const std::string restored = previous == nullptr ? "" : previous;
  const SimdLevel levels[] = {SimdLevel::kGeneric, SimdLevel::kAvx2, SimdLevel::kAvx512,
                              SimdLevel::kAmx};
  const char* names[] = {"generic", "avx2", "avx512", "amx"};
  for (int i = 0; i < count; ++i) {
    setenv("LARGEOUT_SIMD_LEVEL", names[i], 1);
    largeout_read_simd_level();
    if (ActiveSimdLevel() == levels[i]) body();
  }
  if (previous == nullptr) {
    unsetenv("LARGEOUT_SIMD_LEVEL");
  } else {
    setenv("LARGEOUT_SIMD_LEVEL", restored.c_str(), 1);
  }
  largeout_read_simd_level();
}

}  // namespace

void ForEachSimdLevel(const std::function<void()>& body) { ForTheFirstLevels(3, body); }

void ForEachProductLevel(const std::function<void()>& body) { ForTheFirstLevels(4, body); }

}  // namespace testing
}  // namespace largeout

int main(int argc, char** argv) {
  const char* filter = argc > 1 ? argv[1] : "";
  const auto start = std::chrono::steady_clock::now();
  int run = 0, failed = 0;
  for (const auto& test : largeout::testing::Tests()) {
    if (std::strstr(test.name, filter) == nullptr) continue;
    ++run;
    if (!largeout::testing::Passes(test)) ++failed;
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  std::printf("%d tests, %d failed, %.1f s\n", run, failed, seconds.count());
  if (run == 0) std::printf("No test has \"%s\" in its name.\n", filter);
  return failed == 0 && run > 0 ? 0 : 1;
}
