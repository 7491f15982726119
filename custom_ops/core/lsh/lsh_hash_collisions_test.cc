// Compares how often close vectors collide with closed forms.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "custom_ops/core/base/testing.h"
#include "custom_ops/core/lsh/lsh_hash_testing.h"

namespace largeout {
namespace {

using testing::kKinds;
using testing::Normal;
using testing::OwnedFamily;

// The share of the values on which rows 0 and 1 agree.
double Agreement(const OwnedFamily& owned, const std::vector<float>& two_rows) {
  const std::vector<int32_t> values = owned.Values(two_rows);
  const int64_t n = owned.num_values();
  int64_t equal = 0;
  for (int64_t h = 0; h < n; ++h) equal += values[h] == values[n + h];
  return static_cast<double>(equal) / n;
}

// Two rows; the second is close to the first.
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

// The share of the bins of `width` coordinates whose highest coordinate is the same in both
// rows.
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

TEST(SingleHashesCollideWithTheirClosedFormProbability) {
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

TEST(SimHashCollisionsMatchTheAngleOfUnevenVectors) {
  for (int64_t dim : {2, 3, 64, 1000}) {  // two coordinates have most of the norm
    std::vector<float> rows = Pair(dim, 0.01, 5);
    for (float& number : rows) number *= 1e-3f;
    rows[0] = rows[dim] = rows[dim + 1] = 1;
    const OwnedFamily owned(HashKind::kSimHash, dim, 20, 2000);
    const double p = SimHashAgreement(rows);
    EXPECT_NEAR(Agreement(owned, rows), p, 5 * std::sqrt(p * (1 - p) / owned.num_values()));
  }
}

TEST(BinsOfOtherSizesCollideWithTheirClosedFormProbability) {
  for (HashKind kind : {HashKind::kWta, HashKind::kDwta}) {
    for (int bin_size : {2, 4, 16, 32}) {
      for (int64_t dim : {8, 33}) {  // 8: bins of 16 have all coordinates
        const std::vector<float> rows = Pair(dim, 0.5, 7);
        const OwnedFamily owned(kind, dim, 4, 10000, 30, bin_size);
        const double p = WtaAgreement(rows, std::min<int64_t>(bin_size, dim));
        const double sigma = std::sqrt(p * (1 - p) / owned.num_values());
        EXPECT_NEAR(Agreement(owned, rows), p, 5 * sigma + 1e-12);
      }
    }
  }
}

// A class is found with probability 1 - (1 - p^K)^L over draws of the functions.
TEST(TablesRetrieveWithTheDocumentedProbability) {
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

}  // namespace
}  // namespace largeout
