#include "custom_ops/core/lsh_hash.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <random>
#include <set>
#include <vector>

#include "custom_ops/core/lsh_hash_functions.h"
#include "custom_ops/core/testing.h"

namespace largeout {
namespace {

constexpr HashKind kKinds[] = {HashKind::kSimHash, HashKind::kWta, HashKind::kDwta};

// A family with its functions.
struct OwnedFamily {
  HashFamily family;
  std::vector<int32_t> functions;

  OwnedFamily(HashKind kind, int64_t dim, int num_hashes, int num_tables, int bits = 30,
              int bin_size = 8, uint64_t seed = 1)
      : family{kind, dim, num_hashes, num_tables, bits, bin_size, nullptr},
        functions(HashFunctionsSize(family)) {
    MakeHashFunctions(family, {seed, 2}, functions.data());
    family.functions = functions.data();
  }
  OwnedFamily(const OwnedFamily&) = delete;

  int64_t num_values() const { return NumHashValues(family); }

  std::vector<int32_t> Values(const std::vector<float>& rows,
                              const ParallelFor& parallel = SerialFor) const {
    const int64_t num_rows = rows.size() / family.dim;
    std::vector<int32_t> values(num_rows * num_values(), -7);
    HashValues(family, rows.data(), num_rows, parallel, values.data());
    return values;
  }

  std::vector<int32_t> Codes(const std::vector<float>& rows,
                             const ParallelFor& parallel = SerialFor) const {
    const int64_t num_rows = rows.size() / family.dim;
    std::vector<int32_t> codes(num_rows * family.num_tables, -7);
    HashRows(family, rows.data(), num_rows, num_rows, parallel, codes.data());
    return codes;
  }
};

// Normal numbers, `zeros` of them replaced by 0.
std::vector<float> Normal(int64_t size, double zeros = 0, uint64_t seed = 3) {
  std::mt19937_64 bits(seed);
  std::normal_distribution<float> normal;
  std::uniform_real_distribution<double> uniform;
  std::vector<float> numbers(size);
  for (float& number : numbers) {
    number = normal(bits);
    if (uniform(bits) < zeros) number = 0;
  }
  return numbers;
}

void InThreeParts(int64_t total, int64_t, const std::function<void(int64_t, int64_t)>& work) {
  for (int part = 2; part >= 0; --part) {
    const int64_t begin = total * part / 3, end = total * (part + 1) / 3;
    if (begin < end) work(begin, end);
  }
}

// The share of the values on which rows 0 and 1 agree.
double Agreement(const OwnedFamily& owned, const std::vector<float>& two_rows) {
  const std::vector<int32_t> values = owned.Values(two_rows);
  const int64_t n = owned.num_values();
  int64_t equal = 0;
  for (int64_t h = 0; h < n; ++h) equal += values[h] == values[n + h];
  return static_cast<double>(equal) / n;
}

// Two rows, the second one near the first.
std::vector<float> Pair(int64_t dim, double noise, uint64_t seed) {
  std::vector<float> rows = Normal(2 * dim, 0, seed);
  for (int64_t k = 0; k < dim; ++k) {
    rows[dim + k] = rows[k] + static_cast<float>(noise) * rows[dim + k];
  }
  return rows;
}

double SimHashAgreement(const std::vector<float>& rows) {
  const int64_t dim = rows.size() / 2;
  double xy = 0, xx = 0, yy = 0;
  for (int64_t k = 0; k < dim; ++k) {
    xy += double{rows[k]} * rows[dim + k];
    xx += double{rows[k]} * rows[k];
    yy += double{rows[dim + k]} * rows[dim + k];
  }
  return 1 - std::acos(xy / std::sqrt(xx * yy)) / std::acos(-1.0);
}

// Of the bins of `width` coordinates, the share with the same highest one.
double WtaAgreement(const std::vector<float>& rows, int width) {
  const int64_t dim = rows.size() / 2;
  const float *x = rows.data(), *y = x + dim;
  double agreement = 0;
  for (int64_t c = 0; c < dim; ++c) {
    int64_t below = 0;
    for (int64_t k = 0; k < dim; ++k) below += x[k] < x[c] && y[k] < y[c];
    double share = 1.0 * width / dim;  // Choose(below, w - 1) / Choose(dim, w)
    for (int64_t i = 0; i < width - 1; ++i) {
      share *= std::max<double>(0, below - i) / (dim - 1 - i);
    }
    agreement += share;
  }
  return agreement;
}

double ClosedForm(HashKind kind, const std::vector<float>& rows, int width) {
  return kind == HashKind::kSimHash ? SimHashAgreement(rows) : WtaAgreement(rows, width);
}

TEST(SingleHashesCollideAsTheirClosedFormsSay) {
  for (HashKind kind : kKinds) {
    for (int64_t dim : {64, 100, 256}) {
      for (double noise : {0.1, 0.5, 2.0, 100.0}) {
        const std::vector<float> rows = Pair(dim, noise, dim);
        const OwnedFamily owned(kind, dim, 20, 2000);
        const double p = ClosedForm(kind, rows, 8);
        const double sigma = std::sqrt(p * (1 - p) / owned.num_values());
        EXPECT_NEAR(Agreement(owned, rows), p, 5 * sigma);
      }
    }
  }
}

TEST(SimHashKnowsTheAngleOfUnevenVectors) {
  for (int64_t dim : {2, 3, 64, 1000}) {  // most of the norm on two coordinates
    std::vector<float> rows = Pair(dim, 0.01, 5);
    for (float& number : rows) number *= 1e-3f;
    rows[0] = rows[dim] = rows[dim + 1] = 1;
    const OwnedFamily owned(HashKind::kSimHash, dim, 20, 2000);
    const double p = SimHashAgreement(rows);
    EXPECT_NEAR(Agreement(owned, rows), p, 5 * std::sqrt(p * (1 - p) / owned.num_values()));
  }
}

TEST(BinsOfOtherSizesCollideAsTheirClosedFormSays) {
  for (HashKind kind : {HashKind::kWta, HashKind::kDwta}) {
    for (int bin_size : {2, 4, 16, 32}) {
      for (int64_t dim : {8, 33}) {  // 8: bins of 16 are all coordinates
        const std::vector<float> rows = Pair(dim, 0.5, 7);
        const OwnedFamily owned(kind, dim, 4, 10000, 30, bin_size);
        const double p = WtaAgreement(rows, std::min<int64_t>(bin_size, dim));
        const double sigma = std::sqrt(p * (1 - p) / owned.num_values());
        EXPECT_NEAR(Agreement(owned, rows), p, 5 * sigma + 1e-12);
      }
    }
  }
}

// Met with probability 1 - (1 - p^K)^L, over draws of the functions.
TEST(TablesRetrieveAsOftenAsStated) {
  constexpr int kDraws = 3000, kHashes = 5, kTables = 8, kDim = 128;
  for (HashKind kind : kKinds) {
    const std::vector<float> rows = Pair(kDim, kind == HashKind::kSimHash ? 1.5 : 0.7, 9);
    const double p = ClosedForm(kind, rows, 8);
    const double retrieved = 1 - std::pow(1 - std::pow(p, kHashes), kTables);
    int met = 0;
    for (int draw = 0; draw < kDraws; ++draw) {
      const OwnedFamily owned(kind, kDim, kHashes, kTables, 30, 8, draw);
      const std::vector<int32_t> codes = owned.Codes(rows);
      bool any = false;
      for (int table = 0; table < kTables; ++table)
        any |= codes[2 * table] == codes[2 * table + 1];
      met += any;
    }
    const double sigma = std::sqrt(retrieved * (1 - retrieved) / kDraws);
    EXPECT_NEAR(1.0 * met / kDraws, retrieved, 5 * sigma);
    EXPECT_NEAR(retrieved, 0.5, 0.35);
  }
}

TEST(HashesAreTheSameAtEachSimdLevelAndThreadCount) {
  for (HashKind kind : kKinds) {
    for (int64_t dim : {1, 5, 64, 130, 257}) {
      for (int64_t num_rows : {1, 16, 37, 100}) {
        const OwnedFamily owned(kind, dim, 5, 9, 11);
        const std::vector<float> rows = Normal(num_rows * dim, 0.3);
        setenv("LARGEOUT_SIMD_LEVEL", "generic", 1);
        const std::vector<int32_t> values = owned.Values(rows), codes = owned.Codes(rows);
        unsetenv("LARGEOUT_SIMD_LEVEL");
        testing::ForEachSimdLevel([&] {
          EXPECT_EQ(owned.Values(rows, InThreeParts), values);
          EXPECT_EQ(owned.Codes(rows, InThreeParts), codes);
        });
      }
    }
  }
}

TEST(BinsAreOfDistinctCoordinatesAndDwtaDealsThemFromPermutations) {
  const OwnedFamily wta(HashKind::kWta, 21, 3, 50), dwta(HashKind::kDwta, 21, 3, 50);
  for (int64_t h = 0; h < 150; ++h) {
    const auto bin = wta.functions.begin() + h * 8;
    EXPECT_EQ(std::set<int32_t>(bin, bin + 8).size(), 8);
  }
  for (int64_t h = 0; h < 150; h += 2) {  // 21 / 8 = 2 bins a permutation
    const auto bins = dwta.functions.begin() + h * 8;
    EXPECT_EQ(std::set<int32_t>(bins, bins + 16).size(), 16);
  }
  EXPECT_TRUE(HashFunctionsAreValid(wta.family) && HashFunctionsAreValid(dwta.family));
}

TEST(EmptyValuesAreBorrowedFromOnesWithCoordinates) {
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

TEST(SparseRowsHaveTheValuesOfFullOnes) {
  testing::ForEachSimdLevel([] {
    for (HashKind kind : kKinds) {
      const int64_t dim = 300, num_rows = 41;
      const OwnedFamily owned(kind, dim, 4, 11);
      std::vector<float> rows = Normal(num_rows * dim, 0.9);
      std::fill_n(rows.begin() + dim, dim, 0.0f);
      std::vector<int64_t> ids, splits = {0};
      std::vector<float> numbers;
      for (int64_t i = 0; i < num_rows * dim; ++i) {
        if (rows[i] != 0) {
          ids.push_back(i % dim);
          numbers.push_back(rows[i]);
        }
        if ((i + 1) % dim == 0) splits.push_back(ids.size());
      }
      std::vector<int32_t> values(num_rows * owned.num_values());
      HashValues(owned.family, {ids.data(), numbers.data(), splits.data()}, num_rows,
                 InThreeParts, values.data());
      EXPECT_EQ(values, owned.Values(rows));
    }
  });
}

TEST(AllNumbersHaveBuckets) {
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

// The numbers of values 0 .. count - 1 of one table that go to each bucket.
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

TEST(AsManyListsOfValuesGoToEachBucket) {
  EXPECT_EQ(BucketSizes(9, 4), std::vector<int>(16, 32));
  EXPECT_EQ(BucketSizes(9, 9), std::vector<int>(512, 1));
}

TEST(EnoughBitsWriteOneValueAfterTheOther) {
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

// Many random rows, few bits: all buckets are about as large, also where the
// values are far more than 32 bits.
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

TEST(DamagedFunctionsAreFound) {
  OwnedFamily bins(HashKind::kDwta, 50, 2, 5), projections(HashKind::kSimHash, 50, 2, 5);
  bins.functions[3] = 50;
  projections.functions[3] = 0x7fc00000;  // NaN
  EXPECT_FALSE(HashFunctionsAreValid(bins.family));
  EXPECT_FALSE(HashFunctionsAreValid(projections.family));
}

}  // namespace
}  // namespace largeout
