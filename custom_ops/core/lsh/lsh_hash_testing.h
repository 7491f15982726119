// Hash families with their functions, and vectors, for tests of the hashes.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_LSH_LSH_HASH_TESTING_H_
#define LARGEOUT_CUSTOM_OPS_CORE_LSH_LSH_HASH_TESTING_H_

#include <cstdint>
#include <random>
#include <vector>

#include "custom_ops/core/lsh/lsh_hash.h"
#include "custom_ops/core/lsh/lsh_hash_functions.h"

namespace largeout {
namespace testing {

inline constexpr HashKind kKinds[] = {HashKind::kSimHash, HashKind::kWta, HashKind::kDwta};

// A family with its functions.
struct OwnedFamily {
  HashFamily family;
  std::vector<int32_t> functions;

  OwnedFamily(HashKind kind, int64_t dim, int num_hashes, int num_tables, int bits = 30,
              int bin_size = 8, uint64_t seed = 1)
      : family{kind, dim, num_hashes, num_tables, bits, bin_size, nullptr},
        functions(HashFunctionsSize(family)) {
    MakeHashFunctions(family, {seed, 2}, functions.data());
    family.functions = functions.data();
  }
  OwnedFamily(const OwnedFamily&) = delete;

  int64_t num_values() const { return NumHashValues(family); }

  // The single values, [num_rows, num_tables, num_hashes]: the codes of as many tables of one
  // hash.
  std::vector<int32_t> Values(const std::vector<float>& rows,
                              const ParallelFor& parallel = SerialFor) const {
    const int64_t num_rows = rows.size() / family.dim, num_hashes = family.num_hashes;
    HashFamily single = family;
    single.num_hashes = 1;
    single.num_tables = static_cast<int>(num_values());
    single.bits = kMaxHashBits;
    std::vector<int32_t> codes(num_rows * num_values(), -7), values;
    HashQueries(single, rows.data(), num_rows, parallel, codes.data());
    values.reserve(codes.size());
    for (int64_t row = 0; row < num_rows; ++row) {
      for (int64_t i = 0; i < num_values(); ++i) {
        const int64_t h = i % num_hashes * family.num_tables + i / num_hashes;
        values.push_back(codes[row * num_values() + h]);
      }
    }
    return values;
  }

  std::vector<int32_t> Codes(const std::vector<float>& rows,
                             const ParallelFor& parallel = SerialFor) const {
    const int64_t num_rows = rows.size() / family.dim;
    std::vector<int32_t> codes(num_rows * family.num_tables, -7);
    HashRows(family, rows.data(), num_rows, num_rows, parallel, codes.data());
    return codes;
  }
};

// Normal numbers; a share of `zeros` of them is replaced by 0.
inline std::vector<float> Normal(int64_t size, double zeros = 0, uint64_t seed = 3) {
  std::mt19937_64 bits(seed);
  std::normal_distribution<float> normal;
  std::uniform_real_distribution<double> uniform;
  std::vector<float> numbers(size);
  for (float& number : numbers) {
    number = normal(bits);
    if (uniform(bits) < zeros) number = 0;
  }
  return numbers;
}

}  // namespace testing
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_LSH_LSH_HASH_TESTING_H_
