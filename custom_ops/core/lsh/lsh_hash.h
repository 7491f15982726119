// Locality-sensitive hashes: close vectors have equal values more often.
//
// SimHash (Charikar 2002): a value is one bit, the sign of a random projection. Two vectors at
// angle theta agree with probability 1 - theta/pi. Projections are rows of H D_b R H D. H is
// the Hadamard matrix of the padded dimension. D and D_b (one D_b per block of values) have
// random signs on the diagonal. R rotates planes by random angles; without it, sums of a few
// signs would tie. A value takes O(log dim) time, and the projections of a block are
// orthogonal.
//
// WTA (Yagnik et al. 2011): a value says which of `bin_size` random coordinates is the highest.
// Two vectors agree with probability
//   sum_c Choose(R_c, k - 1) / Choose(dim, k),
// R_c = number of coordinates below coordinate c in both, k = bin_size.
//
// DWTA (Chen and Shrivastava 2018, "Densified winner take all hashing for sparse datasets"):
// like WTA, but one permutation provides the coordinates of many values, and zeros are ignored.
// A value whose coordinates are all zero is copied from another value, which double hashing of
// its number chooses.
//
// All inputs are allowed: WTA and DWTA ignore NaN; a projection that is 0 or NaN is not
// positive; all values of the zero vector are 0.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_LSH_LSH_HASH_H_
#define LARGEOUT_CUSTOM_OPS_CORE_LSH_LSH_HASH_H_

#include <cstdint>

#include "custom_ops/core/base/parallel.h"
#include "custom_ops/core/base/philox.h"

namespace largeout {

enum class HashKind { kSimHash, kWta, kDwta };

inline constexpr int kMaxHashBits = 30;
inline constexpr int kMaxBinSize = 256;

// num_tables functions from vectors to buckets, each made of num_hashes values. REQUIRES:
// HashFamilyIsValid.
struct HashFamily {
  HashKind kind;
  int64_t dim;
  int num_hashes;            // K values per table
  int num_tables;            // L
  int bits;                  // of a bucket's number
  int bin_size;              // WTA and DWTA: coordinates per value, at most dim
  const int32_t* functions;  // from MakeHashFunctions
};

// dim, num_hashes, num_tables >= 1; bin_size a power of two in
// [2, kMaxBinSize]; 1 <= bits <= kMaxHashBits; fewer than 2^31 functions.
bool HashFamilyIsValid(const HashFamily& family);

// The number of int32 in `functions`.
int64_t HashFunctionsSize(const HashFamily& family);

// Draws the functions; they depend only on the family and the seed. Ignores family.functions.
void MakeHashFunctions(const HashFamily& family, PhiloxSeed seed, int32_t* functions);

// Whether `functions` can be used. They may come from a damaged file.
bool HashFunctionsAreValid(const HashFamily& family);

// codes[table * code_stride + i]: the bucket of row i, in [0, 2^bits). Rows whose num_hashes
// values agree share a bucket. If `bits` are enough, the code is the concatenated values.
// Otherwise the values are mixed so that each bucket gets the same number of combinations of
// values (if the values take at most 32 bits; longer ones are folded to 32 bits first). The
// codes do not depend on the SIMD level or the number of threads. rows: [num_rows, dim].
void HashRows(const HashFamily& family, const float* rows, int64_t num_rows,
              int64_t code_stride, const ParallelFor& parallel, int32_t* codes);

// The same codes in row-major order, as queries need them: [num_rows, num_tables].
void HashQueries(const HashFamily& family, const float* rows, int64_t num_rows,
                 const ParallelFor& parallel, int32_t* codes);

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_LSH_LSH_HASH_H_
