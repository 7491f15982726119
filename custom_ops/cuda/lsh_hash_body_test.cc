#include "custom_ops/cuda/lsh_hash_body.h"

#include <limits>
#include <vector>

#include "custom_ops/core/lsh_hash_testing.h"
#include "custom_ops/core/testing.h"
#include "custom_ops/cuda/host_blocks.h"

namespace largeout {
namespace cuda {
namespace {

using testing::kKinds;
using testing::Normal;
using testing::OwnedFamily;

using Ints = std::vector<int32_t>;

// Rows with all that a float can be.
std::vector<float> NastyRows(int64_t num_rows, int64_t dim) {
  std::vector<float> rows = Normal(num_rows * dim, 0.5);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  for (int64_t k = 0; k < dim && num_rows > 3; ++k) {
    rows[k] = 0;
    rows[dim + k] = k % 3 == 0 ? nan : k % 3 == 1 ? infinity : -infinity;
    rows[2 * dim + k] = k == dim / 2 ? 1e-40f : -0.0f;
  }
  return rows;
}

// What lsh_hash.cu does, 2^log_rows rows at a time.
template <bool kSimHash, bool kInShared>
void HashWith(const OwnedFamily& owned, const std::vector<float>& rows, const HashCodes& codes,
              int32_t* values, int64_t blocks, int threads, int log_rows) {
  const HashFamily& family = owned.family;
  const int64_t num_rows = static_cast<int64_t>(rows.size()) / family.dim;
  const HashPanel panel(family, log_rows);
  std::vector<char> scratch(panel.Bytes() * blocks);
  RunBlocks(blocks, threads, kInShared ? panel.Bytes() : 0,
            HashBody<kSimHash, kInShared>{family, panel, RuleOf(family), rows.data(), num_rows,
                                          HashesByFours(family, rows.data()), codes, values,
                                          scratch.data()});
}

void Hash(const OwnedFamily& owned, const std::vector<float>& rows, const HashCodes& codes,
          int32_t* values, int64_t blocks, int threads, int log_rows, bool in_shared) {
  const auto with = owned.family.kind == HashKind::kSimHash
                        ? (in_shared ? HashWith<true, true> : HashWith<true, false>)
                        : (in_shared ? HashWith<false, true> : HashWith<false, false>);
  with(owned, rows, codes, values, blocks, threads, log_rows);
}

TEST(CodesOnTheGpuAreThoseOfTheCpu) {
  for (const HashKind kind : kKinds) {
    for (const int64_t dim : {1, 3, 64, 100, 200}) {
      const OwnedFamily owned(kind, dim, 5, 13, 9, 8);
      for (const int64_t num_rows : {0, 1, 19}) {
        const std::vector<float> rows = NastyRows(num_rows, dim);
        Ints codes(num_rows * 13, -7);
        Hash(owned, rows, {codes.data(), 1, num_rows}, nullptr, 3, 32, 2, true);
        EXPECT_EQ(codes, owned.Codes(rows));
        Ints by_row(num_rows * 13, -7);
        Hash(owned, rows, {by_row.data(), 13, 1}, nullptr, num_rows, 64, 0, false);
        Ints queries(num_rows * 13);
        HashQueries(owned.family, rows.data(), num_rows, SerialFor, queries.data());
        EXPECT_EQ(by_row, queries);
      }
    }
  }
}

// One pass over a row, two, more; padded and not; one block of values and several.
TEST(CodesOfAllWidthsAreThoseOfTheCpu) {
  for (const HashKind kind : kKinds) {
    for (const int64_t dim : {64, 128, 130, 256, 500, 1000, 2048, 4096, 8192}) {
      const OwnedFamily owned(kind, dim, 3, 50, 10, 8);
      const std::vector<float> rows = NastyRows(7, dim);
      for (const int log_rows : {0, 1, 2, 3, 5}) {
        Ints codes(7 * 50, -7);
        Hash(owned, rows, {codes.data(), 1, 7}, nullptr, 2, 32, log_rows, log_rows != 1);
        EXPECT_EQ(codes, owned.Codes(rows));
      }
    }
  }
}

TEST(PanelsHaveRoomForTheirRows) {
  for (const HashKind kind : kKinds) {
    for (const int64_t dim : {1, 64, 128, 1000, 20000}) {
      const OwnedFamily owned(kind, dim, 4, 250, 10, 2);
      const std::vector<float> rows = NastyRows(70, dim);
      const HashPanel panel = PanelFor(owned.family, kHashThreads);
      EXPECT_EQ(panel.rows() == 1 || panel.Bytes() <= 24 * 1024, true);
      Ints codes(70 * 250, -7);
      Hash(owned, rows, {codes.data(), 1, 70}, nullptr, 2, kHashThreads, panel.log_rows, true);
      EXPECT_EQ(codes, owned.Codes(rows));
    }
  }
}

TEST(RowsAreReadByFoursOnlyWhereTheyAreAligned) {
  const OwnedFamily owned(HashKind::kSimHash, 100, 3, 50);
  alignas(16) float rows[8] = {};
  HashFamily family = owned.family;
  alignas(16) int32_t functions[8] = {};
  family.functions = functions;
  EXPECT_EQ(HashesByFours(family, rows), true);
  EXPECT_EQ(HashesByFours(family, rows + 1), false);
  family.functions = functions + 2;
  EXPECT_EQ(HashesByFours(family, rows), false);
  family.functions = functions;
  family.dim = 102;
  EXPECT_EQ(HashesByFours(family, rows), false);
}

TEST(CodesOfTheLastTableGoElsewhere) {
  for (const int num_tables : {1, 3}) {
    const OwnedFamily owned(HashKind::kSimHash, 20, 5, num_tables, 9);
    const std::vector<float> rows = NastyRows(11, 20);
    const Ints expected = owned.Codes(rows);
    const int64_t others = 11 * (num_tables - 1);
    Ints codes(others + 1, -7), last(11, -7);
    Hash(owned, rows, {codes.data(), 1, 11, last.data()}, nullptr, 3, 32, 1, true);
    Ints all(codes.begin(), codes.begin() + others);
    all.insert(all.end(), last.begin(), last.end());
    EXPECT_EQ(all, expected);
    EXPECT_EQ(codes.back(), -7);
  }
}

TEST(ValuesOnTheGpuAreThoseOfTheCpu) {
  for (const HashKind kind : kKinds) {
    const OwnedFamily owned(kind, 70, 9, 20, 12, 16);  // SimHash: two blocks
    const std::vector<float> rows = NastyRows(21, 70);
    Ints values(21 * owned.num_values(), -7);
    Hash(owned, rows, {}, values.data(), 4, 128, 5, true);
    EXPECT_EQ(values, owned.Values(rows));
  }
}

TEST(SparseRowsBorrowAsOnTheCpu) {
  const OwnedFamily owned(HashKind::kDwta, 500, 4, 30, 12, 8);
  const std::vector<float> rows = Normal(20 * 500, 0.98);
  Ints values(20 * owned.num_values(), -7);
  Hash(owned, rows, {}, values.data(), 20, 32, 1, true);
  EXPECT_EQ(values, owned.Values(rows));
}

TEST(CoordinatesThatThereAreNotTakeNoPart) {
  OwnedFamily owned(HashKind::kWta, 16, 1, 2, 3, 8);
  for (int j = 0; j < 8; ++j) owned.functions[j] = j % 2 == 0 ? 1 << 20 : -j;
  owned.functions[5] = 3;
  Ints codes(2, -7);
  Hash(owned, Normal(16), {codes.data(), 2, 1}, nullptr, 1, 32, 0, true);
  EXPECT_EQ(codes[0], 5);
}

}  // namespace
}  // namespace cuda
}  // namespace largeout
