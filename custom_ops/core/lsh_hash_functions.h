// Where the functions of a HashFamily lie, and how values become buckets.
//
// Value i of table t has number h = i * num_tables + t, so that the values of
// one table come from as many permutations or blocks of signs as there are.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_LSH_HASH_FUNCTIONS_H_
#define LARGEOUT_CUSTOM_OPS_CORE_LSH_HASH_FUNCTIONS_H_

#include <cstdint>

#include "custom_ops/core/lsh_hash.h"

namespace largeout {

inline int64_t NumHashValues(const HashFamily& family) {
  return int64_t{family.num_hashes} * family.num_tables;
}

// SimHash: functions [1 + NumSignBlocks, PaddedDim] are signs, 0 or INT32_MIN
// to be xor-ed onto floats. Number h is row h % PaddedDim of block h / PaddedDim.
// Short vectors are padded too, for sums of enough signs.
inline int64_t PaddedDim(const HashFamily& family) {
  int64_t padded = 64;
  while (padded < family.dim) padded *= 2;
  return padded;
}

inline int64_t NumSignBlocks(const HashFamily& family) {
  const int64_t padded = PaddedDim(family);
  return (NumHashValues(family) + padded - 1) / padded;
}

// WTA, DWTA: functions [NumHashValues, BinWidth] are coordinates.
inline int64_t BinWidth(const HashFamily& family) {
  return family.bin_size < family.dim ? family.bin_size : family.dim;
}

// The number of bits that one value takes.
inline int ValueBits(const HashFamily& family) {
  if (family.kind == HashKind::kSimHash) return 1;
  int bits = 0;
  while (1 << bits < family.bin_size) ++bits;
  return bits;
}

// How the values of a table become its bucket: `joined` is rotated left by
// value_bits and xor-ed with the next value, all on `joined_bits` bits; then
// BucketOf(joined).
struct BucketMix {
  int value_bits;
  int joined_bits;
  int bits;

  explicit BucketMix(const HashFamily& family)
      : value_bits(ValueBits(family)),
        joined_bits(
            value_bits * int64_t{family.num_hashes} > 32 ? 32 : value_bits * family.num_hashes),
        bits(family.bits) {}

  // A bijection on joined_bits bits whose high bits depend on all of `joined`.
  int32_t BucketOf(uint32_t joined) const {
    if (joined_bits <= bits) return static_cast<int32_t>(joined);
    const uint32_t mask = 0xffffffffu >> (32 - joined_bits);
    const int half = (joined_bits + 1) / 2;
    joined ^= joined >> half;
    joined = joined * 0x9E3779B1u & mask;
    joined ^= joined >> half;
    joined = joined * 0x85EBCA77u & mask;
    joined ^= joined >> half;
    return static_cast<int32_t>(joined >> (joined_bits - bits));
  }
};

// DWTA: calls found(j) on other values' numbers j < num_values, in an order that
// depends on h and num_values only, until it returns true. Visits all of them.
template <class Found>
inline void ProbeValues(int64_t h, int64_t num_values, const Found& found) {
  uint64_t mask = 1;
  while (mask < static_cast<uint64_t>(num_values)) mask = 2 * mask + 1;
  const uint64_t mixed = static_cast<uint64_t>(h + 1) * 0x9E3779B97F4A7C15u;
  const uint64_t start = mixed >> 40, stride = mixed >> 8 | 1;
  for (uint64_t probe = 0; probe <= mask; ++probe) {
    const int64_t j = static_cast<int64_t>((start + probe * stride) & mask);
    if (j < num_values && found(j)) return;
  }
}

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_LSH_HASH_FUNCTIONS_H_
