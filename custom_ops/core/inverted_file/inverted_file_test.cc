#include "custom_ops/core/inverted_file/inverted_file.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "custom_ops/core/base/testing.h"
#include "custom_ops/core/inverted_file/inverted_file_testing.h"

namespace largeout {
namespace {

using Example = testing::InvertedFileExample;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

ParallelFor Threads(int count) {
  return [count](int64_t total, int64_t, const std::function<void(int64_t, int64_t)>& work) {
    std::vector<std::thread> threads;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t begin = total * i / count, end = total * (i + 1) / count;
      if (begin < end) threads.emplace_back([=, &work] { work(begin, end); });
    }
    for (std::thread& thread : threads) thread.join();
  };
}

void ExpectEachClassInOneList(Example* e) {
  EXPECT_TRUE(HasLists(e->file(), e->ids.size()));
  EXPECT_EQ(e->offsets.back(), e->ids.size());
  const std::set<int32_t> distinct(e->ids.begin(), e->ids.end());
  EXPECT_EQ(distinct.size(), e->ids.size());
  EXPECT_EQ(*distinct.begin(), 0);
  for (size_t l = 0; l + 1 < e->offsets.size(); ++l) {
    EXPECT_LE(e->offsets[l + 1] - e->offsets[l],
              MostMembers(e->ids.size(), e->mean_bias.size()));
    EXPECT_TRUE(std::is_sorted(&e->ids[0] + e->offsets[l], &e->ids[0] + e->offsets[l + 1]));
  }
  for (float mean : e->means) EXPECT_TRUE(std::isfinite(mean));
}

TEST(SearchFindsMostOfTheBest) {
  testing::ForEachSimdLevel([] {
    Example e(4000, 24, 37, 250);
    FitLists(e.matrix(), {1, 2}, SerialFor, e.file());
    ExpectEachClassInOneList(&e);
    EXPECT_GE(e.Recall(20, 10), 0.85);
    EXPECT_GE(e.Recall(250, 10), 0.97);  // the loss due to 8-bit codes
  });
}

TEST(RowsOfAnyLengthCanCountAsRowsOfLengthOne) {
  testing::ForEachSimdLevel([] {
    Example unit(1000, 24, 37, 60), other(1000, 24, 37, 60);
    for (int64_t c = 0; c < 1000; ++c) {
      float* row = &unit.rows[c * 24];
      const double length = std::sqrt(std::inner_product(row, row + 24, row, 0.0));
      for (int64_t k = 0; k < 24; ++k) {
        row[k] /= length;
        // A power of 2, so that nothing is rounded.
        other.rows[c * 24 + k] = std::ldexp(row[k], c % 9 - 4);
      }
    }
    const auto as_unit = [](Example* e) {
      InvertedFile file = e->file();
      file.unit_length = true;
      return file;
    };
    for (Example* e : {&unit, &other}) {
      FitLists(e->matrix(), {1, 2}, Threads(3), as_unit(e));
      for (float& value : e->rows) value = -value;
      UpdateLists(e->matrix(), 900, 300, Threads(3), as_unit(e));
    }
    EXPECT_EQ(unit.ids, other.ids);
    EXPECT_EQ(unit.means, other.means);
    EXPECT_EQ(unit.codes, other.codes);
    EXPECT_EQ(unit.scales, other.scales);
    EXPECT_GE(unit.Recall(60, 10), 0.95);  // its scores are those of its own rows
  });
}

TEST(ScoresAreLogitsUpToTheRoundingOfCodes) {
  testing::ForEachSimdLevel([] {
    for (int64_t batch : {1, 2, 3, 5, 70}) {
      Example e(300, 50, batch, 7);
      FitLists(e.matrix(), {1, 2}, SerialFor, e.file());
      const Example::Found found = e.Search(7, 300);
      for (size_t i = 0; i < found.ids.size(); ++i) {
        const int64_t query = i / 300, id = found.ids[i];
        double logit = e.bias[id];
        for (int64_t k = 0; k < e.dim; ++k) {
          logit += e.rows[id * e.dim + k] * e.features[query * e.dim + k];
        }
        EXPECT_NEAR(found.scores[i], logit, 0.5);
        if (i % 300 > 0) EXPECT_LE(found.scores[i], found.scores[i - 1]);
      }
      const auto first = found.ids.begin();
      EXPECT_EQ(std::set<int64_t>(first, first + 300).size(), 300);
    }
  });
}

// Lists that start and end within a group of packed rows, some of them empty, and the largest
// possible sums.
TEST(ListsOfAnyLengthsHaveTheScoresOfTheirMembers) {
  testing::ForEachSimdLevel([] {
    for (int64_t dim : {1, 3, 17, 64}) {
      for (int64_t batch : {1, 2, 3, 4, 5, 33}) {
        Example e(84, dim, batch, 9);
        e.offsets = {0, 0, 1, 16, 33, 33, 34, 50, 84, 84};
        std::iota(e.ids.begin(), e.ids.end(), 0);
        for (int64_t c = 0; c < 84; ++c) {
          std::fill_n(&e.rows[c * dim], dim, c % 3 == 0 ? -1.0f : 1.0f);
          e.bias[c] = 1000 * c;
        }
        for (int64_t i = 0; i < batch * dim; ++i) e.features[i] = i / dim % 2 == 0 ? 1 : -1;
        PackAllRows(e.matrix(), e.ids.data(), SerialFor, e.file().rows);
        const Example::Found found = e.Search(9, 84);
        for (int64_t i = 0; i < batch * 84; ++i) {
          const int64_t id = 83 - i % 84, sign = (i / 84 % 2 == 0) == (id % 3 == 0) ? -1 : 1;
          EXPECT_EQ(found.ids[i], id);
          EXPECT_NEAR(found.scores[i], 1000 * id + sign * dim, 0.02);
        }
      }
    }
  });
}

TEST(RowsInBfloat16GiveTheFileOfEqualFloatRows) {
  testing::ForEachSimdLevel([] {
    Example floats(500, 19, 3, 20);
    std::vector<uint16_t> rounded(floats.rows.size());
    for (size_t i = 0; i < rounded.size(); ++i) {
      uint32_t bits;
      std::memcpy(&bits, &floats.rows[i], sizeof(bits));
      rounded[i] = static_cast<uint16_t>(bits >> 16);
      bits = uint32_t{rounded[i]} << 16;
      std::memcpy(&floats.rows[i], &bits, sizeof(bits));
    }
    Example other = floats;
    ClassMatrix matrix = other.matrix();
    matrix.embeddings = nullptr;
    matrix.bfloat16_rows = rounded.data();
    FitLists(floats.matrix(), {1, 2}, SerialFor, floats.file());
    FitLists(matrix, {1, 2}, testing::BackwardsFor, other.file());
    UpdateLists(floats.matrix(), 450, 100, SerialFor, floats.file());
    UpdateLists(matrix, 450, 100, testing::BackwardsFor, other.file());
    EXPECT_EQ(other.ids, floats.ids);
    EXPECT_EQ(other.means, floats.means);
    EXPECT_EQ(other.codes, floats.codes);
    EXPECT_EQ(other.scales, floats.scales);
  });
}

TEST(FileAndSearchAreTheSameOnAnyNumberOfThreads) {
  Example one(3000, 16, 33, 40), three(3000, 16, 33, 40);
  FitLists(one.matrix(), {1, 2}, SerialFor, one.file());
  FitLists(three.matrix(), {1, 2}, Threads(3), three.file());
  UpdateLists(one.matrix(), 2900, 400, SerialFor, one.file());
  UpdateLists(three.matrix(), 2900, 400, Threads(3), three.file());
  EXPECT_TRUE(one.ids == three.ids && one.offsets == three.offsets);
  EXPECT_TRUE(one.codes == three.codes && one.means == three.means);
  const Example::Found a = one.Search(8, 30), b = three.Search(8, 30, Threads(3));
  EXPECT_TRUE(a.ids == b.ids && a.scores == b.scores);
}

TEST(UpdatesFollowRowsThatMove) {
  Example e(2000, 16, 40, 100);
  FitLists(e.matrix(), {1, 2}, SerialFor, e.file());
  std::mt19937 random(9);
  std::shuffle(e.rows.begin(), e.rows.end(), random);
  const double stale = e.Recall(10, 10);
  int64_t moved = 0;
  for (int64_t begin = 0; begin < 6000; begin += 250) {
    moved += UpdateLists(e.matrix(), begin % 2000, 250, SerialFor, e.file());
    ExpectEachClassInOneList(&e);
  }
  EXPECT_GE(moved, 1500);
  EXPECT_GE(e.Recall(10, 10), stale + 0.2);
  Example same(2000, 16, 40, 100);
  FitLists(same.matrix(), {1, 2}, SerialFor, same.file());
  moved = UpdateLists(same.matrix(), 0, 2000, SerialFor, same.file());
  EXPECT_LE(moved, 200);
}

TEST(RowsThatAreNotFiniteAreInListsButNeverFound) {
  testing::ForEachSimdLevel([] {
    Example e(500, 16, 4, 20);
    std::fill_n(e.rows.begin() + 3 * 16, 16, 0.0f);
    e.rows[7 * 16 + 2] = kNaN;
    e.rows[8 * 16] = kInfinity;
    e.bias[9] = kNaN;
    e.features[16] = kNaN;
    for (int round = 0; round < 2; ++round) {
      if (round == 0) FitLists(e.matrix(), {1, 2}, SerialFor, e.file());
      if (round == 1) UpdateLists(e.matrix(), 0, 500, SerialFor, e.file());
      ExpectEachClassInOneList(&e);
      const Example::Found found = e.Search(20, 500);
      EXPECT_EQ(std::count(found.ids.begin(), found.ids.begin() + 500, -1), 3);
      EXPECT_EQ(std::count(found.ids.begin() + 500, found.ids.begin() + 1000, -1), 500);
      for (int64_t bad : {7, 8, 9}) {
        EXPECT_EQ(std::count(found.ids.begin(), found.ids.end(), bad), 0);
      }
      for (float score : found.scores) EXPECT_FALSE(std::isnan(score));
    }
  });
}

TEST(EqualRowsFillListsUpToTheirBound) {
  Example e(1000, 8, 3, 50);
  for (size_t i = 0; i < e.rows.size(); ++i) e.rows[i] = i % 8;
  std::fill(e.bias.begin(), e.bias.end(), 0.0f);
  FitLists(e.matrix(), {1, 2}, SerialFor, e.file());
  ExpectEachClassInOneList(&e);
  UpdateLists(e.matrix(), 0, 600, SerialFor, e.file());
  ExpectEachClassInOneList(&e);
  for (int64_t id : e.Search(2, 5).ids) EXPECT_GE(id, 0);
}

TEST(FewClassesAndManyListsWork) {
  for (int64_t num_classes : {1, 2, 5}) {
    Example e(num_classes, 3, 2, num_classes);
    FitLists(e.matrix(), {1, 2}, SerialFor, e.file());
    ExpectEachClassInOneList(&e);
    const Example::Found found = e.Search(100, 8);
    EXPECT_EQ(std::count(found.ids.begin(), found.ids.begin() + 8, -1), 8 - num_classes);
  }
}

TEST(FilesWithoutListsFindNothing) {
  Example e(100, 4, 2, 10);
  EXPECT_TRUE(HasLists(e.file(), 100));
  for (int64_t id : e.Search(3, 5).ids) EXPECT_EQ(id, -1);
}

TEST(InvalidOffsetsAreReportedAndInvalidIdsSkipped) {
  Example e(100, 4, 2, 10);
  FitLists(e.matrix(), {1, 2}, SerialFor, e.file());
  e.ids[3] = -5;
  e.ids[70] = 100;
  const Example::Found found = e.Search(10, 100);
  EXPECT_EQ(std::count(found.ids.begin(), found.ids.end(), -1), 4);
  UpdateLists(e.matrix(), 0, 10, SerialFor, e.file());
  ExpectEachClassInOneList(&e);
  e.offsets[4] = 101;
  EXPECT_FALSE(HasLists(e.file(), 100));
  e.offsets[4] = e.offsets[3];
  e.offsets.back() = 99;
  EXPECT_FALSE(HasLists(e.file(), 100));
}

}  // namespace
}  // namespace largeout
