// Scans with 8-bit bounds give the same bits as scans in float32.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <thread>
#include <vector>

#include "custom_ops/core/base/testing.h"
#include "custom_ops/core/class_scan/class_scan.h"
#include "custom_ops/core/class_scan/packed_rows.h"

namespace largeout {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

struct Problem {
  Problem(int64_t batch, int64_t num_classes, int64_t dim, float scale = 1.0f)
      : batch(batch), num_classes(num_classes), dim(dim), random(batch + num_classes + dim) {
    for (auto* values : {&embeddings, &bias, &features}) {
      values->resize(values == &bias         ? num_classes
                     : values == &embeddings ? num_classes * dim
                                             : batch * dim);
      for (float& value : *values) value = scale * normal(random);
    }
  }

  ClassMatrix matrix() const { return {embeddings.data(), bias.data(), num_classes, dim}; }
  float* row(int64_t i) { return embeddings.data() + i * dim; }
  int64_t any() { return random() % num_classes; }

  int64_t batch, num_classes, dim;
  std::mt19937 random;
  std::normal_distribution<float> normal;
  std::vector<float> embeddings, bias, features;
};

struct Found {
  explicit Found(int64_t size) : scores(size), ids(size) {}
  // All NaNs are equal, whatever their bits.
  bool operator==(const Found& other) const {
    if (ids != other.ids) return false;
    for (size_t i = 0; i < scores.size(); ++i) {
      if (std::memcmp(&scores[i], &other.scores[i], sizeof(float)) == 0) continue;
      if (scores[i] == scores[i] || other.scores[i] == other.scores[i]) return false;
    }
    return true;
  }
  std::vector<float> scores;
  std::vector<int64_t> ids;
};

Found Scan(const Problem& p, int64_t k, const PackedRows* packed,
           const ParallelFor& parallel = SerialFor) {
  Found found(p.batch * k);
  ClassTopK(p.matrix(), {p.features.data(), p.batch}, k, parallel, found.scores.data(),
            found.ids.data(), packed);
  return found;
}

// Without a filter: batches this small do not pack the classes.
Found ScanInFloat(const Problem& p, int64_t k) {
  constexpr int64_t kAtOnce = 40;
  Found found(p.batch * k);
  for (int64_t first = 0; first < p.batch; first += kAtOnce) {
    const int64_t count = std::min(kAtOnce, p.batch - first);
    ClassTopK(p.matrix(), {p.features.data() + first * p.dim, count}, k, SerialFor,
              found.scores.data() + first * k, found.ids.data() + first * k);
  }
  return found;
}

struct Packed {
  explicit Packed(const Problem& p)
      : codes(NumCodes(p.num_classes, PackedWidth(p.dim))),
        scales(NumScales(p.num_classes)),
        bounds(NumBounds(p.num_classes)),
        rows{codes.data(), scales.data(), p.num_classes, PackedWidth(p.dim), bounds.data()} {
    PackAllRows(p.matrix(), nullptr, SerialFor, rows);
  }
  std::vector<uint8_t> codes;
  std::vector<float> scales, bounds;
  PackedRows rows;
};

void ExpectEqual(const Problem& p, int64_t k) {
  const Found expected = ScanInFloat(p, k);
  EXPECT_TRUE(Scan(p, k, nullptr) == expected);
  const Packed packed(p);
  EXPECT_TRUE(Scan(p, k, &packed.rows) == expected);
}

TEST(TopKHasTheSameBitsWithPackedRows) {
  testing::ForEachSimdLevel([] {
    for (int64_t batch : {1, 2, 4, 5, 16, 23, 70}) {
      for (int64_t dim : {1, 7, 32, 50, 64}) {
        for (int64_t num_classes : {1, 15, 97, 2503}) {
          const Problem p(batch, num_classes, dim);
          for (int64_t k : {int64_t{1}, std::min<int64_t>(num_classes, 10), num_classes}) {
            ExpectEqual(p, k);
          }
        }
      }
    }
  });
}

// Rounding changes some rows only along the query. Their codes score lower than rows of whole
// numbers, which rounding does not change, but their logits are higher.
TEST(TopKFindsRowsWhoseCodesScoreTooLow) {
  testing::ForEachSimdLevel([] {
    for (int64_t batch : {1, 9, 130}) {
      Problem p(batch, 3000, 64);
      std::vector<float> signs(p.dim);
      for (float& sign : signs) sign = p.random() % 2 ? 1.0f : -1.0f;
      for (int64_t i = 0; i < batch * p.dim; ++i) p.features[i] = signs[i % p.dim];
      const std::vector<float> row(p.row(0), p.row(1));
      for (int64_t i = 0; i < p.num_classes; ++i) {
        for (int64_t k = 0; k < p.dim; ++k) {
          const bool is_better = i > 2000 && i % 100 == 50;
          const float part = is_better ? 0.49f : k % 3 == 0 ? 1.0f : 0.0f;
          p.row(i)[k] = k == 1 ? 127.0f : std::round(10 * row[k]) + signs[k] * part;
        }
        p.bias[i] = 0.0f;
      }
      ExpectEqual(p, 8);
      EXPECT_EQ(ScanInFloat(p, 8).ids[0], 2050);
    }
  });
}

TEST(TopKIsTheSameIfRowsArePackedDuringThePass) {
  testing::ForEachSimdLevel([] {
    for (int64_t batch : {160, 200}) {
      for (int64_t num_classes : {90, 4003}) ExpectEqual(Problem(batch, num_classes, 70), 9);
    }
  });
}

TEST(TopKOfEqualRowsHasTheLowestIds) {
  testing::ForEachSimdLevel([] {
    Problem p(130, 2900, 64);
    for (int64_t i = 0; i < p.num_classes; ++i) {  // three rows, and one with a lower bias
      std::memcpy(p.row(i), p.row(i % 3), p.dim * sizeof(float));
      p.bias[i] = i < 1300 ? 0.5f : 0.25f;
    }
    ExpectEqual(p, 20);
    EXPECT_TRUE(Scan(p, 400, nullptr) == ScanInFloat(p, 400));
  });
}

TEST(TopKFindsTheBestOfRowsThatDifferInTheLastBits) {
  testing::ForEachSimdLevel([] {
    Problem p(130, 3500, 64);
    for (int64_t i = 0; i < p.num_classes; ++i) {
      const float* center = p.row(i % 4);
      for (int64_t k = 0; k < p.dim; ++k)
        p.row(i)[k] = center[k] * (1.0f + 1e-6f * p.normal(p.random));
      p.bias[i] = 0.0f;
    }
    ExpectEqual(p, 10);
  });
}

// Magnitudes whose squares underflow to magnitudes whose products overflow, between rows and
// within a row.
TEST(TopKIsTheSameForAnyMagnitudes) {
  testing::ForEachSimdLevel([] {
    const std::vector<float> sizes = {0,    1e-45f, 1e-38f, 1e-30f, 1e-20f, 1e-8f, 1e-3f, 1,
                                      1e3f, 1e8f,   1e17f,  1e19f,  1e25f,  1e36f, 3e38f};
    for (float query : {0.0f, 1e-44f, 1e-37f, 1e-19f, 1.0f, 1e12f, 1e17f, 1e20f, 1e38f}) {
      Problem p(130, 3200, 64);
      for (float& value : p.features) value *= query;
      for (int64_t i = 0; i < p.num_classes; ++i) {
        const float size = sizes[p.any() % sizes.size()];
        for (int64_t k = 0; k < p.dim; ++k) p.row(i)[k] *= size;
        if (i % 5 == 0) p.row(i)[i % p.dim] *= 1e4f;
        if (i % 7 != 0) p.bias[i] *= sizes[p.any() % sizes.size()];
      }
      ExpectEqual(p, 12);
    }
  });
}

TEST(TopKIsTheSameForNumbersThatAreNotFinite) {
  testing::ForEachSimdLevel([] {
    Problem p(130, 3000, 64);
    for (float bad : {kInfinity, -kInfinity, kNaN}) {
      for (int i = 0; i < 60; ++i) p.row(p.any())[p.any() % p.dim] = bad;
      for (int i = 0; i < 60; ++i) p.bias[p.any()] = bad;
      ExpectEqual(p, 100);
    }
    for (int64_t i = 0; i < p.num_classes; ++i) {  // nearly all rows
      if (i % 50 != 0) p.row(i)[i % p.dim] = kNaN;
    }
    ExpectEqual(p, 100);
    for (float bad : {kInfinity, -kInfinity, kNaN}) {
      p.features[p.any() % p.features.size()] = bad;
      ExpectEqual(p, 10);
    }
  });
}

TEST(FilteredTopKIsTheSameOnAnyNumberOfThreads) {
  testing::ForEachSimdLevel([] {
    const Problem p(140, 5000, 64);
    const Packed packed(p);
    const Found expected = ScanInFloat(p, 9);
    for (int count : {2, 5}) {
      const ParallelFor threads = [count](int64_t total, int64_t, const auto& work) {
        std::vector<std::thread> running;
        for (int64_t i = 0; i < count; ++i) {
          const int64_t begin = total * i / count, end = total * (i + 1) / count;
          if (begin < end) running.emplace_back([=, &work] { work(begin, end); });
        }
        for (std::thread& thread : running) thread.join();
      };
      EXPECT_TRUE(Scan(p, 9, nullptr, threads) == expected);
      EXPECT_TRUE(Scan(p, 9, &packed.rows, threads) == expected);
    }
  });
}

// The problem whose classes are the floats that the codes represent.
Problem Unpacked(const Problem& p, const PackedRows& rows) {
  Problem unpacked = p;
  for (int64_t i = 0; i < p.num_classes; ++i) {
    UnpackRow(rows, i, p.dim, unpacked.row(i));
    unpacked.bias[i] = BiasOfRow(rows, i);
  }
  return unpacked;
}

Found ScanPacked(const Problem& p, int64_t k, const PackedRows& rows) {
  Found found(p.batch * k);
  ClassTopK({nullptr, nullptr, p.num_classes, p.dim}, {p.features.data(), p.batch}, k,
            SerialFor, found.scores.data(), found.ids.data(), &rows);
  return found;
}

void ExpectThatOfTheFloats(const Problem& p, int64_t k) {
  const Packed packed(p);
  EXPECT_TRUE(ScanPacked(p, k, packed.rows) == ScanInFloat(Unpacked(p, packed.rows), k));
}

TEST(TopKOfPackedRowsAloneIsThatOfTheFloatsThatTheyRepresent) {
  testing::ForEachSimdLevel([] {
    for (int64_t batch : {1, 4, 5, 70}) {
      for (int64_t dim : {1, 7, 32, 50}) {
        for (int64_t num_classes : {1, 15, 97, 2503}) {
          ExpectThatOfTheFloats(Problem(batch, num_classes, dim),
                                std::min<int64_t>(num_classes, 10));
        }
      }
    }
  });
}

TEST(TopKOfPackedRowsAloneIsExactForAnyMagnitudesAndForRowsThatAreNotFinite) {
  testing::ForEachSimdLevel([] {
    for (float query : {0.0f, 1e-37f, 1.0f, 1e17f, 1e20f, 1e30f}) {
      Problem p(9, 1500, 64);
      for (float& value : p.features) value *= query;
      for (int64_t i = 0; i < p.num_classes; ++i) {
        const float size = std::pow(10.0f, static_cast<float>(p.any() % 40) - 32);
        for (int64_t k = 0; k < p.dim; ++k) p.row(i)[k] *= size;
      }
      for (int i = 0; i < 30; ++i) p.row(p.any())[p.any() % p.dim] = i % 2 ? kNaN : kInfinity;
      for (int i = 0; i < 30; ++i) p.bias[p.any()] = i % 2 ? kNaN : -kInfinity;
      ExpectThatOfTheFloats(p, 12);
      ExpectThatOfTheFloats(p, 1500);
    }
  });
}

TEST(TopKOfEqualPackedRowsHasTheLowestIds) {
  testing::ForEachSimdLevel([] {
    Problem p(3, 2900, 64);
    for (int64_t i = 0; i < p.num_classes; ++i) {
      std::memcpy(p.row(i), p.row(i % 3), p.dim * sizeof(float));
      p.bias[i] = 0.5f;
    }
    ExpectThatOfTheFloats(p, 40);
  });
}

TEST(BoundsOfPaddingAreIgnored) {
  testing::ForEachSimdLevel([] {
    const Problem p(5, 90, 64);
    Packed packed(p);
    // Also the padding after the last row.
    for (float& bound : packed.bounds) bound = kInfinity;
    EXPECT_TRUE(Scan(p, 9, &packed.rows) == ScanInFloat(p, 9));
  });
}

}  // namespace
}  // namespace largeout
