#include "custom_ops/cuda/inverted_file_body.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "custom_ops/core/inverted_file_testing.h"
#include "custom_ops/core/packed_rows.h"
#include "custom_ops/core/simd_level.h"
#include "custom_ops/core/testing.h"
#include "custom_ops/cuda/host_blocks.h"

namespace largeout {
namespace cuda {
namespace {

using Example = testing::InvertedFileExample;

struct Codes {
  Codes(const std::vector<float>& rows, int64_t dim, int64_t group_rows, int64_t most)
      : num_rows(static_cast<int64_t>(rows.size()) / dim),
        codes(RoundUp(num_rows, group_rows) * PackedWidth(dim), 99),
        scales(num_rows, -1.0f),
        view{codes.data(), scales.data(), PackedWidth(dim), group_rows,
             static_cast<float>(most)} {
    RunBlocks(3, kCodeThreads, CodeBody::kSharedBytes,
              CodeBody{rows.data(), num_rows, dim, view});
  }

  int64_t num_rows;
  std::vector<int8_t> codes;
  std::vector<float> scales;
  CodeRows view;
};

// What inverted_file.cu does, on the host.
Example::Found InBlocks(Example* e, int64_t num_probes, int64_t k) {
  const int64_t batch = static_cast<int64_t>(e->features.size()) / e->dim;
  const Codes means(e->means, e->dim, kMeansTogether, kMostOfRow);
  const Codes queries(e->features, e->dim, 1, MostOfQuery(PackedWidth(e->dim)));
  const SearchMemory memory{std::min(num_probes, e->file().num_lists), k};
  std::vector<char> scratch(2 * memory.Bytes());
  Example::Found found = {std::vector<float>(batch * k), std::vector<int64_t>(batch * k)};
  RunBlocks(2, kSearchThreads, SearchBody::SharedBytes(memory),
            SearchBody{e->file(), means.view, queries.view, batch, memory, scratch.data(),
                       found.scores.data(), found.ids.data()});
  return found;
}

// Rows, queries and means of small whole numbers have exact codes and exact scores, whatever
// the instructions, and many equal ones.
void RoundToWholeNumbers(Example* e) {
  const auto round = [&](std::vector<float>* rows, float most) {
    for (size_t i = 0; i < rows->size(); ++i) {
      const float rounded = std::round((*rows)[i]);
      (*rows)[i] = i % e->dim == 0 ? most : std::clamp(rounded, -most, most);
    }
  };
  round(&e->rows, kMostOfRow);
  round(&e->features, kMostOfQuery);
  for (float& bias : e->bias) bias = std::round(bias);
}

void RoundMeans(Example* e) {
  for (size_t i = 0; i < e->means.size(); ++i) {
    e->means[i] = i % e->dim == 0 ? kMostOfRow : std::round(e->means[i]);
  }
  for (float& bias : e->mean_bias) bias = std::round(bias);
}

void ExpectSame(Example* e, int64_t num_probes, int64_t k) {
  const Example::Found found = InBlocks(e, num_probes, k);
  const Example::Found expected = e->Search(num_probes, k);
  EXPECT_EQ(found.ids, expected.ids);
  EXPECT_EQ(found.scores, expected.scores);
}

TEST(GpuSearchFindsWhatTheCpuFinds) {
  for (const int64_t dim : {3, 16, 50}) {
    Example e(3000, dim, 41, 300);
    RoundToWholeNumbers(&e);
    FitLists(e.matrix(), {1, 2}, SerialFor, e.file());
    RoundMeans(&e);
    for (const int64_t num_probes : {1, 7, 300, 1000}) {
      for (const int64_t k : {1, 16, 700}) ExpectSame(&e, num_probes, k);
    }
  }
}

TEST(GpuSearchOfAnyNumbersFindsTheScoresOfTheCpu) {
  Example e(2000, 24, 30, 90);
  FitLists(e.matrix(), {1, 2}, SerialFor, e.file());
  const Example::Found found = InBlocks(&e, 90, 20), expected = e.Search(90, 20);
  for (size_t i = 0; i < found.scores.size(); ++i) {
    EXPECT_NEAR(found.scores[i], expected.scores[i], 1e-4);
  }
}

TEST(GpuSearchFindsNothingBeforeTheListsAreFitted) {
  Example e(100, 8, 5, 10);
  ExpectSame(&e, 4, 3);
  EXPECT_EQ(InBlocks(&e, 4, 3).ids, std::vector<int64_t>(15, -1));
}

TEST(GpuSearchTreatsBadNumbersAsTheCpuDoes) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  Example e(500, 16, 9, 20);
  RoundToWholeNumbers(&e);
  e.rows[16 * 3 + 2] = std::nanf("");
  e.rows[16 * 4 + 2] = -kInfinity;
  e.bias[5] = kInfinity;
  std::fill_n(e.rows.begin() + 16 * 6, 16, 0.0f);
  e.features[5] = std::nanf("");
  e.features[16 + 5] = kInfinity;
  std::fill_n(e.features.begin() + 16 * 2, 16, 0.0f);
  FitLists(e.matrix(), {1, 2}, SerialFor, e.file());
  RoundMeans(&e);
  e.mean_bias[3] = std::nanf("");
  e.means[16 * 4] = kInfinity;
  ExpectSame(&e, 20, 500);
}

TEST(GpuSearchFollowsNoOffsetsAndIdsOutOfRange) {
  Example e(500, 16, 9, 20);
  FitLists(e.matrix(), {1, 2}, SerialFor, e.file());
  for (int32_t& id : e.ids) {
    if (id % 7 == 0) id = id % 2 == 0 ? -1 - id : 500 + id;
  }
  e.offsets[4] = -9;
  e.offsets[11] = 1 << 30;
  const Example::Found found = InBlocks(&e, 20, 500);
  for (const int64_t id : found.ids)
    EXPECT_TRUE(id >= -1 && id < 500 && (id < 0 || id % 7 != 0));
}

}  // namespace
}  // namespace cuda
}  // namespace largeout
