#include "custom_ops/core/lsh/lsh_tables.h"

#include <algorithm>
#include <thread>
#include <vector>

#include "custom_ops/core/base/testing.h"

namespace largeout {
namespace {

using Ints = std::vector<int32_t>;

// Runs every unit on its own thread.
void ThreadedFor(int64_t total, int64_t, const std::function<void(int64_t, int64_t)>& work) {
  std::vector<std::thread> threads;
  for (int64_t i = 0; i < total; ++i) threads.emplace_back([&work, i] { work(i, i + 1); });
  for (std::thread& thread : threads) thread.join();
}

Ints RandomCodes(int64_t count, int32_t num_codes) {
  Ints codes(count);
  uint64_t state = 1;
  for (int32_t& code : codes) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    code = static_cast<int32_t>((state >> 33) % num_codes);
  }
  return codes;
}

TEST(BucketsHaveTheRowsOfTheirCodeInIncreasingOrder) {
  const Ints codes{2, 0, 2, 3, 0,  // table 0
                   1, 1, 1, 1, 1};
  Ints ids = codes, offsets(2 * 5);
  SortIntoBuckets(2, 4, 5, SerialFor, offsets.data(), ids.data());
  EXPECT_EQ(offsets, (Ints{0, 2, 2, 4, 5, 0, 0, 5, 5, 5}));
  EXPECT_EQ(ids, (Ints{1, 4, 0, 2, 3, 0, 1, 2, 3, 4}));
}

TEST(AStableSortOfManyRowsIsTheSameOnAllThreads) {
  const int64_t rows = 100003;
  for (const int32_t buckets : {1, 2, 64, 8192}) {
    const Ints codes = RandomCodes(3 * rows, buckets);
    Ints serial = codes, threaded = codes;
    Ints offsets(3 * (buckets + 1)), threaded_offsets(offsets.size());
    SortIntoBuckets(3, buckets, rows, SerialFor, offsets.data(), serial.data());
    SortIntoBuckets(3, buckets, rows, ThreadedFor, threaded_offsets.data(), threaded.data());
    EXPECT_EQ(serial, threaded);
    EXPECT_EQ(offsets, threaded_offsets);
    for (int64_t table = 0; table < 3; ++table) {
      const int32_t* code = codes.data() + table * rows;
      Ints expected(rows);
      for (int64_t i = 0; i < rows; ++i) expected[i] = static_cast<int32_t>(i);
      std::stable_sort(expected.begin(), expected.end(),
                       [&](int32_t a, int32_t b) { return code[a] < code[b]; });
      const auto begin = serial.begin() + table * rows;
      EXPECT_TRUE(std::equal(expected.begin(), expected.end(), begin));
      for (int32_t bucket = 0; bucket < buckets; ++bucket) {
        ASSERT_EQ(offsets[table * (buckets + 1) + bucket],
                  std::count_if(code, code + rows, [&](int32_t c) { return c < bucket; }));
        if (bucket == 100) break;
      }
    }
  }
}

TEST(DamagedOffsetsGiveEmptyBuckets) {
  const Ints ids{0, 1, 2};
  for (const Ints& offsets : {Ints{-1, 2}, Ints{2, 1}, Ints{0, 4}, Ints{5, 9}}) {
    const LshTables tables{offsets.data(), ids.data(), 1, 1, 3};
    EXPECT_EQ(BucketOf(tables, 0, 0).size, 0);
  }
}

TEST(FreshEntriesAreThoseInTheBucketOfTheCode) {
  Ints ids{0, 1, 1, 0, 1, 1, 1, 1}, offsets(2 * 3);
  SortIntoBuckets(2, 2, 4, SerialFor, offsets.data(), ids.data());
  const LshTables tables{offsets.data(), ids.data(), 2, 2, 4};
  const std::vector<int64_t> rows{0, 2};
  EXPECT_EQ(CountFreshEntries(tables, Ints{0, 1, 1, 1}.data(), rows.data(), 2), 4);
  EXPECT_EQ(CountFreshEntries(tables, Ints{1, 1, 1, 0}.data(), rows.data(), 2), 2);
  EXPECT_EQ(CountFreshEntries(tables, Ints{0, -1, 1, 2}.data(), rows.data(), 2), 2);
  const std::vector<int64_t> no_ids{-1, int64_t{1} << 32};
  EXPECT_EQ(CountFreshEntries(tables, Ints{0, 1, 0, 1}.data(), no_ids.data(), 2), 0);
}

}  // namespace
}  // namespace largeout
