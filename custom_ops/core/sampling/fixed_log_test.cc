#include "custom_ops/core/sampling/fixed_log.h"

#include <cmath>

#include "custom_ops/core/base/testing.h"

namespace largeout {
namespace {

long double Log(uint64_t n) {
  return std::ldexp(static_cast<long double>(FixedLog(n)), -kFixedLogBits);
}

TEST(FixedLogIsTheLogarithm) {
  const long double tolerance = std::ldexp(1.0L, -52);
  EXPECT_EQ(FixedLog(1), 0);
  for (uint64_t n = 1; n < 3000; ++n) EXPECT_NEAR(Log(n), std::log(1.0L * n), tolerance);
  for (uint64_t n = 3000; n < uint64_t{1} << 61; n += n / 7 + 1) {
    EXPECT_NEAR(Log(n), std::log(1.0L * n), tolerance);
  }
}

// The length of a class of the log-uniform distribution.
void ExpectTheStepFrom(uint64_t n) {
  const double step = static_cast<double>(FixedLog(n + 1) - FixedLog(n));
  EXPECT_GT(step, 0);
  EXPECT_NEAR(std::ldexp(step, -kFixedLogBits), std::log1p(1.0 / n), std::ldexp(1.0, -52));
}

TEST(FixedLogRisesByWhatTheNextIntegerAdds) {
  for (uint64_t n = 1; n < uint64_t{1} << 40; n += n / 5 + 1) ExpectTheStepFrom(n);
}

TEST(FixedLogHasNoJumpsBetweenItsPieces) {
  for (int e = 1; e < 41; ++e) {
    const auto root = static_cast<uint64_t>(std::ldexp(std::sqrt(2.0), e));
    for (uint64_t n = root - 1; n < root + 2; ++n) ExpectTheStepFrom(n);
    ExpectTheStepFrom((uint64_t{1} << e) - 1);
    ExpectTheStepFrom(uint64_t{1} << e);
  }
}

// All processors must compute these, because draws depend on them.
TEST(FixedLogHasKnownBits) {
  EXPECT_EQ(FixedLog(2), 0x162E42FEFA39EF3);
  EXPECT_EQ(FixedLog(3), 158326716603851093);
  EXPECT_EQ(FixedLog(1000003), 1991025334769909564);
}

}  // namespace
}  // namespace largeout
