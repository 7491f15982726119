#include "custom_ops/core/lsh/lsh_pool.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "custom_ops/core/base/testing.h"

namespace largeout {
namespace {

using Ids = std::vector<int64_t>;
using Ints = std::vector<int32_t>;

TEST(EveryEntryIsDrawnEquallyOften) {
  Ints ids{0, 0, 1, 1, 1, 2, 2, 2, 2, 3};  // codes of 10 classes
  ids.insert(ids.end(), {1, 0, 1, 0, 1, 0, 1, 0, 1, 0});
  Ints offsets(2 * 5);
  SortIntoBuckets(2, 4, 10, SerialFor, offsets.data(), ids.data());
  const LshTables tables{offsets.data(), ids.data(), 2, 4, 10};
  const Ints codes{0, 1, 2, -1, -1, -1};  // three queries
  const LshQueries queries{codes.data(), nullptr, 3, 2, 0};
  const std::vector<double> entries{2, 1, 1, 0, 1, 1, 2, 1, 2, 0};  // 11
  std::vector<int> counts(10);
  const int draws = 5000, m = 3;
  for (uint64_t seed = 0; seed < draws; ++seed) {
    Ids pool(m);
    EXPECT_EQ(DrawEntries(tables, queries, m, {seed, 1}, SerialFor, pool.data()), 11);
    for (int64_t id : pool) ++counts[id];
  }
  for (int c = 0; c < 10; ++c) {
    const double mean = draws * m * entries[c] / 11;
    EXPECT_NEAR(counts[c], mean, 5 * std::sqrt(mean) + 0.01);
  }
}

TEST(MoreDrawsThanEntriesTakeEachSeveralTimes) {
  Ints ids{0, 0, 1}, offsets(3);
  SortIntoBuckets(1, 2, 3, SerialFor, offsets.data(), ids.data());
  const Ints codes{0};
  Ids pool(6);
  DrawEntries({offsets.data(), ids.data(), 1, 2, 3}, {codes.data(), nullptr, 1, 1, 0}, 6,
              {1, 1}, SerialFor, pool.data());
  EXPECT_EQ(std::count(pool.begin(), pool.end(), 0), 3);
  EXPECT_EQ(std::count(pool.begin(), pool.end(), 1), 3);
}

TEST(WithoutEntriesThePoolIsEmpty) {
  const Ints offsets{0, 0, 0}, ids{0, 0}, codes{1};
  Ids pool(2);
  EXPECT_EQ(DrawEntries({offsets.data(), ids.data(), 1, 2, 2}, {codes.data(), nullptr, 1, 1, 0},
                        2, {1, 1}, SerialFor, pool.data()),
            0);
  EXPECT_EQ(pool, (Ids{-1, -1}));
}

TEST(TheUnionTakesTheBestOfEachListFirst) {
  const Ids lists{7, 3, 1, 3, 8, -1, 7, -1, -1};
  Ids pool(3);
  EXPECT_EQ(UnionOfLists(lists.data(), 3, 3, 100, 3, {1, 1}, pool.data()), 0);
  EXPECT_EQ(pool, (Ids{7, 3, 8}));
  pool.resize(9);
  EXPECT_EQ(UnionOfLists(lists.data(), 3, 3, 100, 9, {1, 1}, pool.data()), 5);
  EXPECT_EQ(Ids(pool.begin(), pool.begin() + 4), (Ids{7, 3, 8, 1}));
  EXPECT_EQ(std::set<int64_t>(pool.begin(), pool.end()).size(), 9);
  pool.resize(11);
  EXPECT_EQ(UnionOfLists(lists.data(), 3, 3, 9, 11, {1, 1}, pool.data()), 5);
  EXPECT_EQ(pool[9], -1);
}

}  // namespace
}  // namespace largeout
