#include "custom_ops/cuda/lsh_tables_body.h"

#include <algorithm>
#include <vector>

#include "custom_ops/core/lsh_tables.h"
#include "custom_ops/core/philox.h"
#include "custom_ops/core/testing.h"
#include "custom_ops/cuda/host_blocks.h"

namespace largeout {
namespace cuda {
namespace {

using Ints = std::vector<int32_t>;

// What lsh_tables.cu does for one table, with std for the sort.
void ExpectTheTableOfTheCpu(const Ints& codes, int64_t num_buckets) {
  const auto n = static_cast<int64_t>(codes.size());
  Ints ids(n, -7), offsets(num_buckets + 1, -7);
  RunItems(n, NumberRows{ids.data()});
  std::stable_sort(ids.begin(), ids.end(),
                   [&](int32_t a, int32_t b) { return codes[a] < codes[b]; });
  std::vector<uint32_t> sorted(n);
  for (int64_t i = 0; i < n; ++i) sorted[i] = static_cast<uint32_t>(codes[ids[i]]);
  RunItems(num_buckets + 1, FindOffsets{sorted.data(), n, offsets.data()});
  Ints expected_ids = codes, expected_offsets(num_buckets + 1);
  SortIntoBuckets(1, num_buckets, n, SerialFor, expected_offsets.data(), expected_ids.data());
  EXPECT_EQ(ids, expected_ids);
  EXPECT_EQ(offsets, expected_offsets);
}

TEST(TablesOnTheGpuAreThoseOfTheCpu) {
  for (const int64_t num_buckets : {2, 8, 1024}) {
    for (const int64_t n : {0, 1, 7, 500}) {
      Ints codes(n);
      for (int64_t i = 0; i < n; ++i) {
        codes[i] = static_cast<int32_t>(ScaleBits(BitsOfDraw({1, 2}, i).first, num_buckets));
      }
      ExpectTheTableOfTheCpu(codes, num_buckets);
      ExpectTheTableOfTheCpu(Ints(n, 0), num_buckets);
      ExpectTheTableOfTheCpu(Ints(n, static_cast<int32_t>(num_buckets - 1)), num_buckets);
    }
  }
}

}  // namespace
}  // namespace cuda
}  // namespace largeout
