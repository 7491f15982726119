#include "custom_ops/core/simd_level.h"

#include <cstdlib>

#include "custom_ops/core/testing.h"

namespace largeout {
namespace {

TEST(TheEnvironmentVariableLowersTheSimdLevelAtEachCall) {
  const SimdLevel before = ActiveSimdLevel();
  int levels = 0;
  testing::ForEachSimdLevel([&] { ++levels; });
  EXPECT_GE(levels, 1);
  EXPECT_EQ(ActiveSimdLevel(), before);
}

TEST(TheGenericLevelIsThereOnEveryProcessor) {
  int generic = 0;
  testing::ForEachSimdLevel([&] { generic += ActiveSimdLevel() == SimdLevel::kGeneric; });
  EXPECT_EQ(generic, 1);
}

}  // namespace
}  // namespace largeout
