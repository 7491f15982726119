// The layout of the functions of a HashFamily.
//
// Value i of table t has number h = i * num_tables + t, so that the values of one table come
// from as many different permutations or blocks as possible.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_LSH_LSH_HASH_FUNCTIONS_H_
#define LARGEOUT_CUSTOM_OPS_CORE_LSH_LSH_HASH_FUNCTIONS_H_

#include <algorithm>
#include <cstdint>

#include "custom_ops/core/base/host_device.h"
#include "custom_ops/core/base/rounding.h"
#include "custom_ops/core/lsh/lsh_hash.h"
#include "custom_ops/core/lsh/lsh_hash_simd.h"

namespace largeout {

LARGEOUT_HOST_DEVICE inline int64_t NumHashValues(const HashFamily& family) {
  return int64_t{family.num_hashes} * family.num_tables;
}

// SimHash: functions [2 + NumBlocks, PaddedDim] are the bits of floats. They hold the diagonal
// of D; then PaddedDim / 2 cosines and PaddedDim / 2 sines, with which R rotates coordinates i
// and i + PaddedDim / 2; then the diagonals of the D_b. Number h is row h % PaddedDim of block
// h / PaddedDim. Short vectors are padded too.
LARGEOUT_HOST_DEVICE inline int64_t PaddedDim(const HashFamily& family) {
  int64_t padded = 64;
  while (padded < family.dim) padded *= 2;
  return padded;
}

LARGEOUT_HOST_DEVICE inline int64_t NumBlocks(const HashFamily& family) {
  const int64_t padded = PaddedDim(family);
  return CeilDiv(NumHashValues(family), padded);
}

// WTA, DWTA: functions [NumHashValues, BinWidth] are coordinates.
LARGEOUT_HOST_DEVICE inline int64_t BinWidth(const HashFamily& family) {
  return family.bin_size < family.dim ? family.bin_size : family.dim;
}

// The number of bits that one value takes.
LARGEOUT_HOST_DEVICE inline int ValueBits(const HashFamily& family) {
  if (family.kind == HashKind::kSimHash) return 1;
  int bits = 0;
  while (1 << bits < family.bin_size) ++bits;
  return bits;
}

inline BucketRule RuleOf(const HashFamily& family) {
  const int64_t joined_bits = int64_t{family.num_hashes} * ValueBits(family);
  return {family.num_hashes, family.num_tables, ValueBits(family),
          static_cast<int>(std::min<int64_t>(joined_bits, 32)), family.bits};
}

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_LSH_LSH_HASH_FUNCTIONS_H_
