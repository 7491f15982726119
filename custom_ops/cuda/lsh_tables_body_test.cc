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

float FreshShareOf(const LshTables& tables, const Ints& codes,
                   const std::vector<int64_t>& row_ids, int threads) {
  float share = -7;
  RunBlocks(1, threads, FindFreshShare::kSharedBytes,
            FindFreshShare{tables, codes.data(), row_ids.data(),
                           static_cast<int64_t>(row_ids.size()), &share});
  return share;
}

TEST(FreshSharesOnTheGpuAreThoseOfTheCpu) {
  const int64_t num_tables = 3, num_buckets = 4, n = 97;
  Ints ids(num_tables * n), offsets(num_tables * (num_buckets + 1)), codes(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    ids[i] = static_cast<int32_t>(ScaleBits(BitsOfDraw({1, 2}, i).first, num_buckets));
    codes[i % n * num_tables + i / n] = i % 5 == 0 ? 1 : ids[i];
  }
  SortIntoBuckets(num_tables, num_buckets, n, SerialFor, offsets.data(), ids.data());
  const LshTables tables{offsets.data(), ids.data(), num_tables, num_buckets, n};
  for (const int64_t num_rows : {0, 1, 7, 97}) {
    std::vector<int64_t> row_ids(num_rows);
    for (int64_t i = 0; i < num_rows; ++i) row_ids[i] = i;
    const int64_t fresh = CountFreshEntries(tables, codes.data(), row_ids.data(), num_rows);
    for (const int threads : {8, kFreshShareThreads}) {
      EXPECT_EQ(FreshShareOf(tables, codes, row_ids, threads),
                ShareOf(fresh, num_rows * num_tables));
    }
  }
}

TEST(WhatIsNoCodeOrNoIdIsNotFreshOnTheGpu) {
  const Ints ids{0, 1, 2, 3}, offsets{0, 2, 4}, codes{0, 0, 2, -1, 1 << 30, 1};
  const LshTables tables{offsets.data(), ids.data(), 1, 2, 4};
  EXPECT_EQ(FreshShareOf(tables, codes, {0, int64_t{1} << 32, 2, 3, 3, -1}, 8), ShareOf(1, 6));
}

}  // namespace
}  // namespace cuda
}  // namespace largeout
