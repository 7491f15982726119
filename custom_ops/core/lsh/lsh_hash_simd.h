// The interface between lsh_hash.cc and the vectorised lsh_hash*_simd.cc.
//
// Rows are the lanes of the vectors, kHashRows at a time at each SIMD level. Coordinate k of
// row r is panel[k * kHashRows + r]; value number h of row r is values[h * kHashRows + r]
// (lsh_hash_functions.h defines the numbers).

#ifndef LARGEOUT_CUSTOM_OPS_CORE_LSH_LSH_HASH_SIMD_H_
#define LARGEOUT_CUSTOM_OPS_CORE_LSH_LSH_HASH_SIMD_H_

#include <cstdint>

#include "custom_ops/core/base/host_device.h"

namespace largeout {

inline constexpr int kHashRows = 16;
// An empty value of DWTA, to be replaced.
inline constexpr int32_t kNoValue = -1;

// Which numbers are ignored. The panel has -infinity in their place.
enum class AbsentNumbers { kNone, kNan, kNanAndZero };

// Rows that will be read next. They are prefetched while values are computed.
struct UpcomingRows {
  const float* data;
  int64_t size;  // in floats, perhaps 0
};

struct ProjectionFunctions {
  const int32_t* factors;  // [2 + blocks, padded_dim], the bits of floats
  int64_t padded_dim;      // a power of two, at least 64
  int64_t num_values;
};

struct BinFunctions {
  const int32_t* coordinates;  // [num_values, width]
  int32_t width;
  int64_t num_values;
  bool mark_empty;  // whether a bin of -infinity gives kNoValue instead of 0
};

// How the values of a table become its bucket: `joined` is rotated left by value_bits and
// xor-ed with the next value, in 32 bits. If the resulting joined_bits exceed `bits`, a
// bijection makes the high bits depend on all bits, and the high bits are used.
struct BucketRule {
  int num_hashes;
  int num_tables;
  int value_bits;
  int joined_bits;
  int bits;
};

// One step of joining. Word: uint32_t, or a vector of them.
template <class Word>
LARGEOUT_HOST_DEVICE inline Word JoinValue(Word joined, Word value, int value_bits) {
  return (joined << value_bits | joined >> (32 - value_bits)) ^ value;
}

template <class Word>
LARGEOUT_HOST_DEVICE inline Word BucketOfJoined(Word joined, const BucketRule& rule) {
  if (rule.joined_bits <= rule.bits) return joined;
  joined ^= joined >> (rule.joined_bits + 1) / 2;
  joined *= 0x9E3779B1u;
  joined &= 0xffffffffu >> (32 - rule.joined_bits);
  return joined >> (rule.joined_bits - rule.bits);
}

#define LARGEOUT_DECLARE_LSH_HASH(level)                                                  \
  namespace level {                                                                       \
  /* panel [dim, kHashRows] from rows [kHashRows, dim]. */                                \
  void FillHashPanel(const float* rows, int64_t dim, AbsentNumbers absent, float* panel); \
  /* panel and both halves of scratch: [padded_dim, kHashRows]. */                        \
  void ProjectionValues(const ProjectionFunctions& functions, const float* panel,         \
                        const UpcomingRows& upcoming, float* scratch, int32_t* values);   \
  /* *any_empty: whether a value is kNoValue. */                                          \
  void BinValues(const BinFunctions& functions, const float* panel,                       \
                 const UpcomingRows& upcoming, int32_t* values, bool* any_empty);         \
  /* codes[table * code_stride + r] of the first num_rows rows. */                        \
  void JoinValues(const BucketRule& rule, const int32_t* values, int64_t num_rows,        \
                  int64_t code_stride, int32_t* codes);                                   \
  }
LARGEOUT_DECLARE_LSH_HASH(generic)
LARGEOUT_DECLARE_LSH_HASH(avx2)
LARGEOUT_DECLARE_LSH_HASH(avx512)
#undef LARGEOUT_DECLARE_LSH_HASH

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_LSH_LSH_HASH_SIMD_H_
