#include "custom_ops/cuda/lsh_query_body.h"

#include <vector>

#include "custom_ops/core/testing.h"
#include "custom_ops/cuda/host_blocks.h"

namespace largeout {
namespace cuda {
namespace {

using Ids = std::vector<int64_t>;
using Ints = std::vector<int32_t>;

struct Tables {
  Tables(int64_t num_tables, int64_t num_buckets, int64_t num_classes)
      : ids(num_tables * num_classes), offsets(num_tables * (num_buckets + 1)) {
    for (size_t i = 0; i < ids.size(); ++i) {
      const int64_t bucket = ScaleBits(BitsOfDraw({5, 6}, i).first, num_buckets);
      ids[i] = static_cast<int32_t>(i % 3 == 0 ? 0 : bucket);  // one is large
    }
    SortIntoBuckets(num_tables, num_buckets, num_classes, SerialFor, offsets.data(),
                    ids.data());
    view = {offsets.data(), ids.data(), num_tables, num_buckets, num_classes};
  }
  Tables(const Tables&) = delete;

  Ints ids, offsets;
  LshTables view;
};

struct Case {
  int64_t num_vectors = 1, batch = 5, num_sampled = 20, max_lookups = 1 << 10;
  bool fill = true;
  Ids labels = {};  // the same for each row
};

// Both queries of both sides; blocks fewer than rows, and of several sizes.
void ExpectTheIdsOfTheCpu(const LshTables& tables, const Case& one) {
  const int64_t num_codes = one.num_vectors * tables.num_tables;
  Ints codes(one.batch * num_codes);
  for (size_t i = 0; i < codes.size(); ++i) {
    const auto code = ScaleBits(BitsOfDraw({7, 8}, i).first, tables.num_buckets + 1);
    codes[i] = static_cast<int32_t>(code) - 1;  // -1: none
  }
  Ids labels;
  for (int64_t row = 0; row < one.batch; ++row) {
    labels.insert(labels.end(), one.labels.begin(), one.labels.end());
  }
  const LshQueries queries{codes.data(), labels.data(), one.batch, num_codes,
                           static_cast<int64_t>(one.labels.size())};
  const int64_t seed[] = {3, -4};
  for (const bool most_met : {false, true}) {
    for (const int threads : {8, 128}) {
      const LshDraw draw{one.num_sampled, one.max_lookups, one.fill, SeedAt(seed)};
      Ids expected(one.batch * one.num_sampled, -7), ids = expected;
      Ints expected_filled(one.batch, -7), filled = expected_filled;
      (most_met ? largeout::MostMetClasses : largeout::WalkBuckets)(
          tables, queries, draw, SerialFor, expected.data(), expected_filled.data());
      const QueryMemory memory(queries, draw, most_met ? one.max_lookups : 0, threads);
      std::vector<uint64_t> scratch(2 * memory.Bytes() / 8, 0xABABABABABABABABu);
      const QueryBody rows{
          tables, queries,    draw,         memory, reinterpret_cast<char*>(scratch.data()),
          seed,   ids.data(), filled.data()};
      const int64_t shared = QueryShared::Bytes(threads);
      if (most_met) {
        RunBlocks(2, threads, shared, MostMetBody{rows});
      } else {
        RunBlocks(2, threads, shared, WalkBody{rows});
      }
      EXPECT_EQ(ids, expected);
      EXPECT_EQ(filled, expected_filled);
    }
  }
}

TEST(QueriesOnTheGpuGiveTheIdsOfTheCpu) {
  const Tables tables(7, 8, 500);
  for (const int64_t m : {1, 20, 130, 480, 500, 510}) {
    for (const bool fill : {true, false}) {
      Case one;
      one.num_sampled = m;
      one.fill = fill;
      one.labels = {11, -1, 400};
      ExpectTheIdsOfTheCpu(tables.view, one);
    }
  }
}

TEST(QueriesOnTheGpuFillAsTheCpuDoes) {
  const Tables tables(3, 64, 5000);
  Case one;
  one.max_lookups = 50;  // few are found, most are drawn
  for (const int64_t m : {40, 300, 3000}) {
    one.num_sampled = m;
    ExpectTheIdsOfTheCpu(tables.view, one);
  }
}

TEST(QueriesOnTheGpuLookAtAsManyEntriesAsTheCpu) {
  const Tables tables(150, 16, 400);  // more buckets than threads
  Case one;
  one.num_vectors = 2;
  for (const int64_t lookups : {1, 3, 100, 5000, 200000}) {
    one.max_lookups = lookups;
    for (const int64_t m : {5, 150, 390}) {
      one.num_sampled = m;
      ExpectTheIdsOfTheCpu(tables.view, one);
    }
  }
}

TEST(DamagedTablesOnTheGpuArePassedOver) {
  Tables tables(2, 4, 40);
  for (size_t i = 0; i < tables.ids.size(); i += 3) tables.ids[i] = i % 2 == 0 ? -5 : 1 << 30;
  tables.offsets[1] = 1 << 29;
  tables.offsets[7] = -3;
  Case one;
  for (const int64_t m : {3, 30}) {
    one.num_sampled = m;
    ExpectTheIdsOfTheCpu(tables.view, one);
  }
}

TEST(EmptyBatchesAndRowsWithoutCodesAreFine) {
  const Tables tables(2, 4, 40);
  Case one;
  one.batch = 0;
  ExpectTheIdsOfTheCpu(tables.view, one);
  one.batch = 2;
  one.num_vectors = 0;
  ExpectTheIdsOfTheCpu(tables.view, one);
}

}  // namespace
}  // namespace cuda
}  // namespace largeout
