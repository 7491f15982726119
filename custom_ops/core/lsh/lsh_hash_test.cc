#include "custom_ops/core/lsh/lsh_hash.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <limits>
#include <random>
#include <set>
#include <vector>

#include "custom_ops/core/base/testing.h"
#include "custom_ops/core/lsh/lsh_hash_testing.h"

namespace largeout {
namespace {

using testing::kKinds;
using testing::Normal;
using testing::OwnedFamily;

void InThreeParts(int64_t total, int64_t, const std::function<void(int64_t, int64_t)>& work) {
  for (int part = 2; part >= 0; --part) {
    const int64_t begin = total * part / 3, end = total * (part + 1) / 3;
    if (begin < end) work(begin, end);
  }
}

TEST(HashesAreTheSameAtEachSimdLevelAndThreadCount) {
  for (HashKind kind : kKinds) {
    for (int64_t dim : {1, 5, 64, 130, 257}) {
      for (int64_t num_rows : {1, 16, 37, 100}) {
        const OwnedFamily owned(kind, dim, 5, 9, 11);
        const std::vector<float> rows = Normal(num_rows * dim, 0.3);
        std::vector<int32_t> values, codes;  // at the first level
        testing::ForEachSimdLevel([&] {
          if (values.empty()) values = owned.Values(rows);
          if (codes.empty()) codes = owned.Codes(rows);
          EXPECT_EQ(owned.Values(rows, InThreeParts), values);
          EXPECT_EQ(owned.Codes(rows, InThreeParts), codes);
        });
      }
    }
  }
}

TEST(QueriesHaveTheCodesOfRows) {
  for (HashKind kind : kKinds) {
    const OwnedFamily owned(kind, 40, 4, 9, 10);
    const std::vector<float> rows = Normal(37 * 40);
    const std::vector<int32_t> codes = owned.Codes(rows);
    std::vector<int32_t> by_row(37 * 9), expected;
    HashQueries(owned.family, rows.data(), 37, InThreeParts, by_row.data());
    for (int64_t i = 0; i < 37 * 9; ++i) expected.push_back(codes[i % 9 * 37 + i / 9]);
    EXPECT_EQ(by_row, expected);
  }
}

TEST(BinsHaveDistinctCoordinatesAndDwtaTakesThemFromPermutations) {
  const OwnedFamily wta(HashKind::kWta, 21, 3, 50), dwta(HashKind::kDwta, 21, 3, 50);
  for (int64_t h = 0; h < 150; ++h) {
    const auto bin = wta.functions.begin() + h * 8;
    EXPECT_EQ(std::set<int32_t>(bin, bin + 8).size(), 8);
  }
  for (int64_t h = 0; h < 150; h += 2) {  // 21 / 8 = 2 bins per permutation
    const auto bins = dwta.functions.begin() + h * 8;
    EXPECT_EQ(std::set<int32_t>(bins, bins + 16).size(), 16);
  }
  EXPECT_TRUE(HashFunctionsAreValid(wta.family) && HashFunctionsAreValid(dwta.family));
}

TEST(EmptyDwtaValuesAreCopiedFromNonEmptyOnes) {
  testing::ForEachSimdLevel([] {
    const int64_t dim = 128;
    const OwnedFamily owned(HashKind::kDwta, dim, 4, 10);
    const std::vector<float> rows = Normal(50 * dim, 0.95);
    const std::vector<int32_t> values = owned.Values(rows);
    int64_t empty = 0, wrong = 0;
    for (int64_t row = 0; row < 50; ++row) {
      std::set<int32_t> own;
      std::vector<int32_t> expected(40);
      for (int64_t h = 0; h < 40; ++h) {
        const int32_t* bin = &owned.functions[h * 8];
        int32_t winner = -1;
        for (int32_t j = 0; j < 8; ++j) {
          const float x = rows[row * dim + bin[j]];
          if (x != 0 && (winner < 0 || x > rows[row * dim + bin[winner]])) winner = j;
        }
        expected[h % 10 * 4 + h / 10] = winner;
        if (winner >= 0) own.insert(winner);
      }
      for (int64_t i = 0; i < 40; ++i) {
        const int32_t value = values[row * 40 + i];
        empty += expected[i] < 0;
        wrong += expected[i] >= 0 ? value != expected[i] : own.count(value) == 0;
      }
    }
    EXPECT_EQ(wrong, 0);
    EXPECT_GT(empty, 400);
  });
}

TEST(AllFloatsHaveBuckets) {
  const float inf = std::numeric_limits<float>::infinity(), nan = NAN;
  const int64_t dim = 40;
  for (HashKind kind : kKinds) {
    const OwnedFamily owned(kind, dim, 3, 20, 7);
    std::vector<float> rows;
    for (float number : {0.0f, -0.0f, nan, inf, -inf, 3e38f, -3e38f, 1e-45f}) {
      rows.insert(rows.end(), dim, number);
    }
    const std::vector<float> normal = Normal(4 * dim);
    rows.insert(rows.end(), normal.begin(), normal.end());
    rows[9 * dim + 3] = nan;
    rows[10 * dim + 3] = inf;
    rows[11 * dim + 3] = -inf;
    const std::vector<int32_t> values = owned.Values(rows), codes = owned.Codes(rows);
    EXPECT_TRUE(*std::min_element(values.begin(), values.end()) >= 0);
    EXPECT_TRUE(*std::max_element(values.begin(), values.end()) < 8);
    EXPECT_TRUE(*std::min_element(codes.begin(), codes.end()) >= 0);
    EXPECT_TRUE(*std::max_element(codes.begin(), codes.end()) < 128);
    for (int64_t i = 0; i < 3 * owned.num_values(); ++i) EXPECT_EQ(values[i], 0);
    for (int table = 0; table < 20; ++table) EXPECT_EQ(codes[table * 12], 0);
  }
}

// How many of the values 0 .. count - 1 of one table are in each bucket.
std::vector<int> BucketSizes(int num_hashes, int bits) {
  const OwnedFamily owned(HashKind::kSimHash, 64, num_hashes, 1, bits);
  std::mt19937_64 random(num_hashes);
  std::normal_distribution<float> normal;
  std::vector<int> sizes(1 << bits);
  std::set<std::vector<int32_t>> seen;
  while (seen.size() < 1u << num_hashes) {
    std::vector<float> row(64);
    for (float& number : row) number = normal(random);
    if (seen.insert(owned.Values(row)).second) ++sizes[owned.Codes(row)[0]];
  }
  return sizes;
}

TEST(EachBucketGetsTheSameNumberOfCombinationsOfValues) {
  EXPECT_EQ(BucketSizes(9, 4), std::vector<int>(16, 32));
  EXPECT_EQ(BucketSizes(9, 9), std::vector<int>(512, 1));
}

TEST(CodesConcatenateValuesIfBitsAreEnough) {
  const std::vector<float> rows = Normal(20 * 30);
  const OwnedFamily owned(HashKind::kWta, 30, 3, 7, 9);
  const std::vector<int32_t> values = owned.Values(rows), codes = owned.Codes(rows);
  for (int64_t row = 0; row < 20; ++row) {
    for (int64_t table = 0; table < 7; ++table) {
      const int32_t* v = &values[(row * 7 + table) * 3];
      EXPECT_EQ(codes[table * 20 + row], v[0] * 64 + v[1] * 8 + v[2]);
    }
  }
}

// Many random rows and few bits: all buckets have about the same size, also if the values take
// far more than 32 bits.
TEST(MixedBucketsAreEven) {
  constexpr int64_t kRows = 40000, kDim = 64;
  const std::vector<float> rows = Normal(kRows * kDim);
  for (HashKind kind : kKinds) {
    for (int num_hashes : {12, 40}) {
      const OwnedFamily owned(kind, kDim, num_hashes, 2, 6);
      const std::vector<int32_t> codes = owned.Codes(rows);
      std::vector<double> sizes(64);
      for (int64_t row = 0; row < kRows; ++row) ++sizes[codes[kRows + row]];
      double chi_square = 0;
      for (double size : sizes) chi_square += (size - 625) * (size - 625) / 625;
      EXPECT_LT(chi_square, 63 + 5 * std::sqrt(2.0 * 63));
    }
  }
}

TEST(FunctionsDependOnAllBitsOfTheSeed) {
  const OwnedFamily any(HashKind::kWta, 50, 2, 5);
  std::set<std::vector<int32_t>> different;
  for (PhiloxSeed seed : {PhiloxSeed{0, 0}, {1, 0}, {0, 1}, {1ull << 32, 0}, {0, 1ull << 32}}) {
    std::vector<int32_t> functions(any.functions.size());
    MakeHashFunctions(any.family, seed, functions.data());
    different.insert(functions);
  }
  EXPECT_EQ(different.size(), 5);
}

TEST(DamagedFunctionsAreDetected) {
  OwnedFamily bins(HashKind::kDwta, 50, 2, 5), projections(HashKind::kSimHash, 50, 2, 5);
  bins.functions[3] = 50;
  projections.functions[3] = 0x7fc00000;  // NaN
  EXPECT_FALSE(HashFunctionsAreValid(bins.family));
  EXPECT_FALSE(HashFunctionsAreValid(projections.family));
}

}  // namespace
}  // namespace largeout
