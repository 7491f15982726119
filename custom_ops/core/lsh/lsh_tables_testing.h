// Numbers for tests of hash tables: codes, ids, labels.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_LSH_LSH_TABLES_TESTING_H_
#define LARGEOUT_CUSTOM_OPS_CORE_LSH_LSH_TABLES_TESTING_H_

#include <cstdint>
#include <vector>

#include "custom_ops/core/base/philox.h"

namespace largeout {
namespace testing {

// Numbers from `first` to first + range - 1.
inline std::vector<int32_t> RandomInts(int64_t size, int64_t first, int64_t range,
                                       uint64_t seed) {
  std::vector<int32_t> numbers(size);
  for (int64_t i = 0; i < size; ++i) {
    const int64_t number = ScaleBits(BitsOfDraw({seed, 6}, i).first, range);
    numbers[i] = static_cast<int32_t>(first + number);
  }
  return numbers;
}

}  // namespace testing
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_LSH_LSH_TABLES_TESTING_H_
