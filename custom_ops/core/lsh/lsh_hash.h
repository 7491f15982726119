// Locality-sensitive hashes: close vectors have equal values more often.
//
// SimHash (Charikar 2002): a value is one bit, the sign of a random
// projection; two vectors at angle theta agree with probability 1 - theta/pi.
// Projections are rows of H D_b R H D: H the Hadamard matrix of the padded
// dimension, D and D_b, one a block of values, random signs on the diagonal, R
// plane rotations by random angles (without R, sums of a few signs would tie).
// O(log dim) a value, and those of a block are orthogonal.
//
// WTA (Yagnik et al. 2011): a value is which one of `bin_size` random
// coordinates is the highest. Two vectors agree with probability
//   sum_c Choose(R_c, k - 1) / Choose(dim, k),
// R_c = number of coordinates below coordinate c in both, k = bin_size.
//
// DWTA (Chen and Shrivastava 2018, "Densified winner take all hashing for
// sparse datasets"): the same, with the coordinates of many values dealt from
// one permutation, and zeros taking no part. A value whose coordinates are all
// zero is borrowed from another one, by double hashing on its number.
//
// Any numbers have values: NaN takes no part in WTA and DWTA; a projection
// that is 0 or NaN is not positive; the zero vector has all values 0.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_LSH_LSH_HASH_H_
#define LARGEOUT_CUSTOM_OPS_CORE_LSH_LSH_HASH_H_

#include <cstdint>

#include "custom_ops/core/base/parallel.h"
#include "custom_ops/core/base/philox.h"

namespace largeout {

enum class HashKind { kSimHash, kWta, kDwta };

inline constexpr int kMaxHashBits = 30;
inline constexpr int kMaxBinSize = 256;

// num_tables functions from vectors to buckets, each of num_hashes values.
// REQUIRES: HashFamilyIsValid.
struct HashFamily {
  HashKind kind;
  int64_t dim;
  int num_hashes;            // K values a table
  int num_tables;            // L
  int bits;                  // of a bucket
  int bin_size;              // WTA and DWTA: coordinates a value, at most dim of them
  const int32_t* functions;  // from MakeHashFunctions
};

// dim, num_hashes, num_tables >= 1; bin_size a power of two in
// [2, kMaxBinSize]; 1 <= bits <= kMaxHashBits; fewer than 2^31 functions.
bool HashFamilyIsValid(const HashFamily& family);

// The number of int32 in `functions`.
int64_t HashFunctionsSize(const HashFamily& family);

// Draws the functions, a function of the seed. Ignores family.functions.
void MakeHashFunctions(const HashFamily& family, PhiloxSeed seed, int32_t* functions);

// Whether `functions` can be used: they may come from a damaged file.
bool HashFunctionsAreValid(const HashFamily& family);

// codes[table * code_stride + i]: the bucket of row i, in [0, 2^bits). Rows
// whose num_hashes values agree share it. It is these values written one after
// the other, where `bits` are enough for that; otherwise they are mixed such
// that as many lists of values go to each bucket (if they take 32 bits at
// most; beyond, they are folded to 32 bits first).
// The codes are the same at any SIMD level and on any number of threads.
// rows: [num_rows, dim].
void HashRows(const HashFamily& family, const float* rows, int64_t num_rows,
              int64_t code_stride, const ParallelFor& parallel, int32_t* codes);

// The same codes row by row, as queries want them: [num_rows, num_tables].
void HashQueries(const HashFamily& family, const float* rows, int64_t num_rows,
                 const ParallelFor& parallel, int32_t* codes);

// values: [num_rows, num_tables, num_hashes], the single values, in [0, 2) for
// SimHash and in [0, bin_size) otherwise. Ignores family.bits.
void HashValues(const HashFamily& family, const float* rows, int64_t num_rows,
                const ParallelFor& parallel, int32_t* values);

// The numbers of row r are values[i] at coordinates ids[i], row_splits[r] <= i
// < row_splits[r + 1]; the last one where a coordinate comes twice. All others are 0.
struct SparseRows {
  const int64_t* ids;
  const float* values;
  const int64_t* row_splits;
};

// The same values as for these rows in full, with memory O(dim) a thread.
// WTA and DWTA take no time O(dim) a row, SimHash does.
// REQUIRES: 0 <= ids[i] < dim, row_splits[0] = 0, ascending.
void HashValues(const HashFamily& family, const SparseRows& rows, int64_t num_rows,
                const ParallelFor& parallel, int32_t* values);

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_LSH_LSH_HASH_H_
