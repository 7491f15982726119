#include "custom_ops/cuda/lsh_pool_body.h"

#include <vector>

#include "custom_ops/core/lsh_tables_testing.h"
#include "custom_ops/core/testing.h"
#include "custom_ops/cuda/host_blocks.h"

namespace largeout {
namespace cuda {
namespace {

using Ids = std::vector<int64_t>;
using Ints = std::vector<int32_t>;
using testing::RandomInts;

struct Tables {
  Tables(int64_t num_tables, int64_t num_buckets, int64_t num_classes)
      : ids(RandomInts(num_tables * num_classes, 0, num_buckets, 1)),
        offsets(num_tables * (num_buckets + 1)) {
    SortIntoBuckets(num_tables, num_buckets, num_classes, SerialFor, offsets.data(),
                    ids.data());
    view = {offsets.data(), ids.data(), num_tables, num_buckets, num_classes};
  }
  Tables(const Tables&) = delete;

  Ints ids, offsets;
  LshTables view;
};

// What lsh_pool.cu does, with a loop for the sum.
Ids Draw(const LshTables& tables, const LshQueries& queries, int64_t num_sampled,
         int64_t* num_entries) {
  const int64_t num_buckets = queries.batch * queries.num_codes;
  const int64_t seed[] = {3, -4};
  Ids ends(num_buckets, -7), pool(num_sampled, -7);
  RunItems(num_buckets, FindSizes{tables, queries, ends.data()});
  for (int64_t i = 1; i < num_buckets; ++i) ends[i] += ends[i - 1];
  RunItems(num_sampled, DrawEntry{tables, queries, ends.data(), num_buckets, num_sampled, seed,
                                  pool.data(), num_entries});
  return pool;
}

void ExpectThePoolOfTheCpu(const LshTables& tables, const Ints& codes, int64_t batch) {
  const auto size = static_cast<int64_t>(codes.size());
  const LshQueries queries{codes.data(), nullptr, batch, batch == 0 ? 0 : size / batch, 0};
  for (const int64_t m : {1, 7, 1000}) {
    Ids expected(m);
    const int64_t expected_entries = DrawEntries(
        tables, queries, m, {3, static_cast<uint64_t>(-4)}, SerialFor, expected.data());
    int64_t num_entries = -7;
    EXPECT_EQ(Draw(tables, queries, m, &num_entries), expected);
    EXPECT_EQ(num_entries, expected_entries);
  }
}

TEST(PoolsOnTheGpuAreThoseOfTheCpu) {
  const Tables tables(7, 8, 300);
  for (const int64_t batch : {1, 2, 33}) {
    ExpectThePoolOfTheCpu(tables.view, RandomInts(14 * batch, -1, 9, 2), batch);
  }
}

TEST(PoolsOnTheGpuOfNothingAreEmpty) {
  const Tables tables(3, 4, 20);
  ExpectThePoolOfTheCpu(tables.view, {}, 0);
  ExpectThePoolOfTheCpu(tables.view, {}, 2);
  ExpectThePoolOfTheCpu(tables.view, Ints(6, -1), 2);
}

TEST(CodesThatAreNoBucketsArePassedOverByThePool) {
  const Tables tables(2, 4, 20);
  const Ints codes{1, 4, 1 << 30, 3}, good{1, -1, -1, 3};
  int64_t num_entries[2];
  EXPECT_EQ(Draw(tables.view, {codes.data(), nullptr, 2, 2, 0}, 50, &num_entries[0]),
            Draw(tables.view, {good.data(), nullptr, 2, 2, 0}, 50, &num_entries[1]));
  EXPECT_EQ(num_entries[0], num_entries[1]);
}

TEST(EntriesThatAreNoClassesAreDrawnAsMinusOne) {
  const Ints ids{0, 3, -5, 1 << 30, 2, 4}, offsets{0, 6, 6}, codes{0};
  int64_t num_entries;
  EXPECT_EQ(Draw({offsets.data(), ids.data(), 1, 2, 6}, {codes.data(), nullptr, 1, 1, 0}, 6,
                 &num_entries),
            (Ids{0, 3, -1, -1, 2, 4}));
  EXPECT_EQ(num_entries, 6);
}

}  // namespace
}  // namespace cuda
}  // namespace largeout
