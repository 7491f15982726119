#include "custom_ops/core/base/simd_level.h"

#include <cstdlib>

#include "custom_ops/core/base/testing.h"

namespace largeout {
namespace {

TEST(TheEnvironmentIsReadOnlyOnce) {
  testing::ForEachSimdLevel([&] {
    const SimdLevel before = ActiveSimdLevel();
    setenv("LARGEOUT_SIMD_LEVEL", before == SimdLevel::kGeneric ? "avx512" : "generic", 1);
    EXPECT_EQ(ActiveSimdLevel(), before);
  });
}

TEST(TheEnvironmentVariableLowersTheSimdLevel) {
  const SimdLevel before = ActiveSimdLevel();
  int levels = 0;
  testing::ForEachSimdLevel([&] { ++levels; });
  EXPECT_GE(levels, 1);
  EXPECT_EQ(ActiveSimdLevel(), before);
}

TEST(EveryProcessorHasTheGenericLevel) {
  int generic = 0;
  testing::ForEachSimdLevel([&] { generic += ActiveSimdLevel() == SimdLevel::kGeneric; });
  EXPECT_EQ(generic, 1);
}

}  // namespace
}  // namespace largeout
