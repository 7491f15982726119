// A small test framework for core. It uses only std and compiles quickly.
//
//   TEST(MergeOfEqualIdsAddsTheirRows) {
//     EXPECT_EQ(Merge({3, 3}).size(), 1);
//     EXPECT_NEAR(sum, 2.0, 1e-6);
//   }
//
// EXPECT_* records a failure and continues; ASSERT_* leaves the test. All X_test.cc files are
// linked into one program (`make test-cc`), whose main function is in testing.cc. With an
// argument, the program runs only the tests whose names contain it.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_BASE_TESTING_H_
#define LARGEOUT_CUSTOM_OPS_CORE_BASE_TESTING_H_

#include <cmath>
#include <cstdint>
#include <functional>
#include <sstream>
#include <string>
#include <type_traits>

namespace largeout {
namespace testing {

// Adds a test to the list that main runs. Returns true.
bool Register(const char* file, const char* name, void (*body)());

// Records that the running test failed.
void Fail(const char* file, int line, const std::string& message);

// Runs `body` once per instruction set that this processor has and X_simd.cc files are compiled
// for, and also with AMX, which only bfloat16 products use.
void ForEachSimdLevel(const std::function<void()>& body);
void ForEachProductLevel(const std::function<void()>& body);

// A ParallelFor in the most unusual order: one unit at a time, starting with the last.
inline void BackwardsFor(int64_t total, int64_t /*cost_per_unit*/,
                         const std::function<void(int64_t, int64_t)>& work) {
  for (int64_t i = total - 1; i >= 0; --i) work(i, i + 1);
}

// The text of a value in a failure message: ranges as their first elements.
template <typename T, typename = void>
struct IsRange : std::false_type {};
template <typename T>
struct IsRange<T, std::void_t<decltype(std::declval<const T&>().begin())>> : std::true_type {};

template <typename T>
std::string Show(const T& value) {
  std::ostringstream out;
  out.precision(9);
  if constexpr (std::is_enum_v<T>) {
    out << static_cast<long long>(value);
  } else if constexpr (IsRange<T>::value && !std::is_same_v<T, std::string>) {
    int shown = 0;
    out << "{";
    for (const auto& element : value) {
      if (shown++ == 16) return out.str() + ", ...}";
      out << (shown > 1 ? ", " : "") << Show(element);
    }
    out << "}";
  } else {
    out << value;
  }
  return out.str();
}

template <typename A, typename B, typename Compare>
bool Check(const char* file, int line, const char* text, const A& a, const B& b,
           Compare compare) {
  if (compare(a, b)) return true;
  Fail(file, line, std::string(text) + "\n    left:  " + Show(a) + "\n    right: " + Show(b));
  return false;
}

}  // namespace testing
}  // namespace largeout

#define TEST(name)                                                         \
  static void LargeoutTest_##name();                                       \
  [[maybe_unused]] static const bool largeout_registered_##name =          \
      ::largeout::testing::Register(__FILE__, #name, LargeoutTest_##name); \
  static void LargeoutTest_##name()

// Integers of different signedness are compared by value.
#define LARGEOUT_CHECK(a, op, b)                                          \
  ::largeout::testing::Check(__FILE__, __LINE__, #a " " #op " " #b, a, b, \
                             [](const auto& x, const auto& y) { return x op y; })

#define EXPECT_EQ(a, b) LARGEOUT_CHECK(a, ==, b)
#define EXPECT_NE(a, b) LARGEOUT_CHECK(a, !=, b)
#define EXPECT_LT(a, b) LARGEOUT_CHECK(a, <, b)
#define EXPECT_LE(a, b) LARGEOUT_CHECK(a, <=, b)
#define EXPECT_GT(a, b) LARGEOUT_CHECK(a, >, b)
#define EXPECT_GE(a, b) LARGEOUT_CHECK(a, >=, b)
#define EXPECT_TRUE(a) LARGEOUT_CHECK(static_cast<bool>(a), ==, true)
#define EXPECT_FALSE(a) LARGEOUT_CHECK(static_cast<bool>(a), ==, false)

// |a - b| <= tolerance; false if a or b is NaN.
#define EXPECT_NEAR(a, b, tolerance)                                \
  ::largeout::testing::Check(                                       \
      __FILE__, __LINE__, "|" #a " - " #b "| <= " #tolerance, a, b, \
      [&](const auto& x, const auto& y) { return std::abs(x - y) <= (tolerance); })

#define ASSERT_TRUE(a) \
  if (!EXPECT_TRUE(a)) return
#define ASSERT_EQ(a, b) \
  if (!EXPECT_EQ(a, b)) return

#endif  // LARGEOUT_CUSTOM_OPS_CORE_BASE_TESTING_H_
