#include "custom_ops/core/rows/row_merge.h"

#include <thread>

#include "custom_ops/core/base/testing.h"

namespace largeout {
namespace {

using Ids = std::vector<int64_t>;

MergedRows Merge(const Ids& ids, const ParallelFor& parallel_for = SerialFor) {
  return MergeRows(ids.data(), static_cast<int64_t>(ids.size()), parallel_for);
}

// Runs every unit on its own thread.
void ThreadedFor(int64_t total, int64_t, const std::function<void(int64_t, int64_t)>& work) {
  std::vector<std::thread> threads;
  for (int64_t i = 0; i < total; ++i) threads.emplace_back([&work, i] { work(i, i + 1); });
  for (std::thread& thread : threads) thread.join();
}

TEST(EqualIdsMakeOneSegmentInInputOrder) {
  const MergedRows merged = Merge({7, 3, 7, 0, 3, 7});
  EXPECT_EQ(merged.ids, (Ids{0, 3, 7}));
  EXPECT_EQ(merged.offsets, (Ids{0, 1, 3, 6}));
  EXPECT_EQ(merged.positions, (std::vector<int32_t>{3, 1, 4, 0, 2, 5}));
}

TEST(NegativeIdsAreSkippedAndASecondListFollows) {
  const Ids ids{-1, 7, -1, 3}, more{7, -5, 1};
  const MergedRows merged = MergeRows(ids.data(), 4, SerialFor, more.data(), 3);
  EXPECT_EQ(merged.ids, (Ids{1, 3, 7}));
  EXPECT_EQ(merged.offsets, (Ids{0, 1, 2, 4}));
  EXPECT_EQ(merged.positions, (std::vector<int32_t>{6, 3, 1, 4}));
  EXPECT_EQ(Merge({-1, -1}).size(), 0);
}

TEST(SortedIdsKeepTheirPlaces) {
  const MergedRows merged = Merge({2, 5, 5, 1 << 20});
  EXPECT_EQ(merged.ids, (Ids{2, 5, 1 << 20}));
  EXPECT_EQ(merged.offsets, (Ids{0, 1, 3, 4}));
  EXPECT_EQ(merged.positions, (std::vector<int32_t>{0, 1, 2, 3}));
}

TEST(DistinctSortedIdsAreTheirOwnSegments) {
  Ids ids, offsets{0};
  std::vector<int32_t> positions;
  for (int64_t i = 0; i < 70001; ++i) {
    ids.push_back(i * 3);
    positions.push_back(static_cast<int32_t>(i));
    offsets.push_back(i + 1);
  }
  for (const MergedRows& merged : {Merge(ids), Merge(ids, ThreadedFor)}) {
    EXPECT_EQ(merged.ids, ids);
    EXPECT_EQ(merged.offsets, offsets);
    EXPECT_EQ(merged.positions, positions);
  }
  ids[40000] = 0;  // in the middle of a range of a thread
  EXPECT_EQ(Merge(ids, ThreadedFor).positions[1], 40000);
}

TEST(NoIdsMakeNoSegments) {
  const MergedRows merged = Merge({});
  EXPECT_EQ(merged.size(), 0);
  EXPECT_EQ(merged.offsets, (Ids{0}));
}

TEST(IdsOfAnySizeAreSorted) {
  const int64_t largest = (int64_t{1} << 62) + 5;
  EXPECT_EQ(Merge({largest, 1 << 11, 0, (int64_t{1} << 33) + 1, largest}).ids,
            (Ids{0, 1 << 11, (int64_t{1} << 33) + 1, largest}));
}

TEST(ThreadsDoNotChangeTheResult) {
  Ids ids(100003);
  uint64_t state = 1;
  for (int64_t& id : ids) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    id = static_cast<int64_t>(state >> 40) % 70000 - 10000;
  }
  const MergedRows serial = Merge(ids), threaded = Merge(ids, ThreadedFor);
  EXPECT_EQ(serial.ids, threaded.ids);
  EXPECT_EQ(serial.offsets, threaded.offsets);
  EXPECT_EQ(serial.positions, threaded.positions);
  for (int64_t s = 0; s < serial.size(); ++s) {
    for (int64_t i = serial.offsets[s]; i < serial.offsets[s + 1]; ++i) {
      ASSERT_EQ(ids[serial.positions[i]], serial.ids[s]);
    }
  }
}

TEST(FirstIdOutOfRangeIsFound) {
  const Ids ids{0, 4, 5, -1};
  EXPECT_EQ(FindIdOutOfRange(ids.data(), 4, 6), 3);
  EXPECT_EQ(FindIdOutOfRange(ids.data(), 4, 5), 2);
  EXPECT_EQ(FindIdOutOfRange(ids.data(), 3, 6), -1);
}

}  // namespace
}  // namespace largeout
