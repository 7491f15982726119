// Counter-based random bits: Philox4x32-10 (Salmon, Moraes, Dror, Shaw 2011, "Parallel random
// numbers: as easy as 1, 2, 3"). The bits of a draw depend only on the seed and the index of
// the draw, so any number of threads gives the same draws.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_BASE_PHILOX_H_
#define LARGEOUT_CUSTOM_OPS_CORE_BASE_PHILOX_H_

#include <array>
#include <cstdint>

#include "custom_ops/core/base/host_device.h"

namespace largeout {

using PhiloxCounter = std::array<uint32_t, 4>;
using PhiloxKey = std::array<uint32_t, 2>;

LARGEOUT_HOST_DEVICE inline PhiloxCounter Philox4x32(PhiloxCounter counter, PhiloxKey key) {
  constexpr int kRounds = 10;
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53} * counter[0];
    const uint64_t product1 = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0],
               static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
               static_cast<uint32_t>(product0)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

// The seed tensor int64 [2]. All 128 bits count: the low halves are the Philox key, the high
// halves the upper words of the counter.
struct PhiloxSeed {
  uint64_t first;
  uint64_t second;
};

// The 128 random bits of one draw.
struct DrawBits {
  uint64_t first;
  uint64_t second;
};

LARGEOUT_HOST_DEVICE inline DrawBits BitsOfDraw(PhiloxSeed seed, uint64_t index) {
  const PhiloxCounter bits = Philox4x32(
      {static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32),
       static_cast<uint32_t>(seed.first >> 32), static_cast<uint32_t>(seed.second >> 32)},
      {static_cast<uint32_t>(seed.first), static_cast<uint32_t>(seed.second)});
  return {bits[0] | uint64_t{bits[1]} << 32, bits[2] | uint64_t{bits[3]} << 32};
}

// Maps 64 random bits to [0, range): floor(bits * range / 2^64). The probability of falling
// below any bound is exact up to 2^-64. REQUIRES: range >= 0. Returns 0 for range 0.
LARGEOUT_HOST_DEVICE inline int64_t ScaleBits(uint64_t bits, int64_t range) {
  return static_cast<int64_t>(static_cast<unsigned __int128>(bits) * range >> 64);
}

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_BASE_PHILOX_H_
