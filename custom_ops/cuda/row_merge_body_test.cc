#include "custom_ops/cuda/row_merge_body.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "custom_ops/core/row_merge.h"
#include "custom_ops/core/testing.h"
#include "custom_ops/cuda/host_blocks.h"

namespace largeout {
namespace cuda {
namespace {

// What row_merge.cu does, with std for the sort and the prefix sum.
template <class Index, class Key>
struct Merged {
  Merged(const std::vector<Index>& input, int64_t num_rows)
      : ids(input.size(), -7),
        offsets(input.size() + 1, -7),
        positions(input.size()),
        started(input.size()) {
    const auto n = static_cast<int64_t>(input.size());
    std::vector<Key> keys(n), sorted(n);
    std::vector<int32_t> unsorted(n), starts(n);
    RunItems(n, KeysBody<Index, Key>{input.data(), num_rows, keys.data(), unsorted.data()});
    positions = unsorted;
    std::stable_sort(positions.begin(), positions.end(),
                     [&](int32_t a, int32_t b) { return keys[a] < keys[b]; });
    for (int64_t i = 0; i < n; ++i) sorted[i] = keys[positions[i]];
    RunItems(n, StartsBody<Key>{sorted.data(), num_rows, starts.data()});
    std::partial_sum(starts.begin(), starts.end(), started.begin());
    RunItems(n, SegmentsBody<Key>{sorted.data(), num_rows, rows()});
  }

  MergedRows rows() {
    return {static_cast<int64_t>(positions.size()),
            &num_segments,
            ids.data(),
            offsets.data(),
            positions.data(),
            started.data(),
            nullptr};
  }

  int32_t num_segments = 0;
  std::vector<int64_t> ids;
  std::vector<int32_t> offsets, positions, started;
};

template <class Index, class Key>
void ExpectSegmentsOfTheCpu(const std::vector<Index>& ids, int64_t num_rows) {
  Merged<Index, Key> merged(ids, num_rows);
  std::vector<Index> rows;
  std::vector<int32_t> places;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= num_rows) continue;
    rows.push_back(ids[i]);
    places.push_back(static_cast<int32_t>(i));
  }
  const auto expected =
      largeout::MergeRows(rows.data(), static_cast<int64_t>(rows.size()), SerialFor);
  ASSERT_EQ(merged.num_segments, expected.size());
  for (int64_t s = 0; s < expected.size(); ++s) ASSERT_EQ(merged.ids[s], expected.ids[s]);
  for (int64_t s = 0; s <= expected.size() && !ids.empty(); ++s) {
    ASSERT_EQ(merged.offsets[s], expected.offsets[s]);
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    ASSERT_EQ(merged.positions[i], places[expected.positions[i]]);
  }
}

template <class Index>
void ExpectSegmentsWithBothKeys(const std::vector<Index>& ids, int64_t num_rows) {
  ExpectSegmentsOfTheCpu<Index, uint32_t>(ids, num_rows);
  ExpectSegmentsOfTheCpu<Index, uint64_t>(ids, num_rows);
}

TEST(GpuMergeHasTheSegmentsOfTheCpu) {
  std::mt19937 random(7);
  for (const int num_ids : {0, 1, 2, 255, 256, 1000}) {
    for (const int num_rows : {1, 2, 50, 100000}) {
      std::vector<int32_t> narrow(num_ids);
      std::vector<int64_t> wide(num_ids);
      for (int i = 0; i < num_ids; ++i) {
        narrow[i] = static_cast<int32_t>(random() % num_rows);
        wide[i] = static_cast<int64_t>(random() % num_rows);
      }
      ExpectSegmentsWithBothKeys(narrow, num_rows);
      ExpectSegmentsWithBothKeys(wide, num_rows);
    }
  }
}

TEST(GpuMergeSkipsIdsThatAreNoRows) {
  ExpectSegmentsWithBothKeys<int64_t>({3, -1, 3, int64_t{1} << 40, 0, 5, -(int64_t{1} << 62)},
                                      5);
  ExpectSegmentsWithBothKeys<int32_t>({-1, 7, 7}, 7);
  ExpectSegmentsWithBothKeys<int32_t>({6}, 7);
  ExpectSegmentsWithBothKeys<int32_t>({0, 0}, 0);
}

TEST(GpuMergeOfEqualIdsIsOneSegment) {
  const std::vector<int64_t> ids(777, 4);
  ExpectSegmentsWithBothKeys(ids, 5);
  Merged<int64_t, uint32_t> merged(ids, 5);
  EXPECT_EQ(merged.num_segments, 1);
  EXPECT_EQ(merged.offsets[1], 777);
}

TEST(GpuMergeTakesRowsBeyond32Bits) {
  const int64_t large = int64_t{1} << 41;
  ExpectSegmentsOfTheCpu<int64_t, uint64_t>({large, 3, large, large + 1, -3}, large + 1);
}

}  // namespace
}  // namespace cuda
}  // namespace largeout
