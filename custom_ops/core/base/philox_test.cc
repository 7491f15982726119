#include "custom_ops/core/base/philox.h"

#include "custom_ops/core/base/testing.h"

namespace largeout {
namespace {

// kat_vectors of the authors' Random123 library, "philox4x32 10".
TEST(PhiloxGivesTheKnownAnswersOfRandom123) {
  EXPECT_EQ(Philox4x32({0, 0, 0, 0}, {0, 0}),
            (PhiloxCounter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(
      Philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
      (PhiloxCounter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(
      Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
      (PhiloxCounter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(EachWordOfTheSeedChangesTheDraw) {
  const DrawBits base = BitsOfDraw({7, 9}, 0);
  for (int bit : {0, 31, 32, 63}) {
    EXPECT_NE(BitsOfDraw({7 ^ uint64_t{1} << bit, 9}, 0).first, base.first);
    EXPECT_NE(BitsOfDraw({7, 9 ^ uint64_t{1} << bit}, 0).first, base.first);
    EXPECT_NE(BitsOfDraw({7, 9}, uint64_t{1} << bit).first, base.first);
  }
}

TEST(ScaledBitsReachBothEndsOfTheRange) {
  EXPECT_EQ(ScaleBits(0, 10), 0);
  EXPECT_EQ(ScaleBits(~uint64_t{0}, 10), 9);
  EXPECT_EQ(ScaleBits(uint64_t{1} << 63, 10), 5);
  EXPECT_EQ(ScaleBits(~uint64_t{0}, 0), 0);
  EXPECT_EQ(ScaleBits(~uint64_t{0}, int64_t{1} << 62), (int64_t{1} << 62) - 1);
}

}  // namespace
}  // namespace largeout
