#include "custom_ops/core/lsh_hash.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "custom_ops/core/lsh_hash_functions.h"

namespace largeout {
namespace {

constexpr int32_t kEmpty = -1;

// In place, unnormalised.
void Hadamard(float* data, int64_t size) {
  for (int64_t step = 1; step < size; step *= 2) {
    for (int64_t i = 0; i < size; i += 2 * step) {
      for (int64_t j = i; j < i + step; ++j) {
        const float a = data[j], b = data[j + step];
        data[j] = a + b;
        data[j + step] = a - b;
      }
    }
  }
}

void FlipSigns(const float* from, const int32_t* signs, int64_t size, float* to) {
  for (int64_t i = 0; i < size; ++i) to[i] = signs[i] < 0 ? -from[i] : from[i];
}

void SimHashOfRow(const HashFamily& family, const float* row, int32_t* values) {
  const int64_t padded = PaddedDim(family);
  std::vector<float> spread(padded), projections(padded);
  std::copy(row, row + family.dim, spread.begin());
  FlipSigns(spread.data(), family.functions, padded, spread.data());
  Hadamard(spread.data(), padded);
  for (int64_t h = 0; h < NumHashValues(family); ++h) {
    if (h % padded == 0) {
      FlipSigns(spread.data(), family.functions + padded + h, padded, projections.data());
      Hadamard(projections.data(), padded);
    }
    values[h] = projections[h % padded] > 0;
  }
}

// The number of the highest coordinate of a bin, the first of equal ones.
int32_t Winner(const HashFamily& family, const float* row, const int32_t* bin) {
  int32_t winner = family.kind == HashKind::kDwta ? kEmpty : 0;
  float highest = -INFINITY;
  for (int32_t j = 0; j < BinWidth(family); ++j) {
    const float value = row[bin[j]];
    if (!(value > highest) || (family.kind == HashKind::kDwta && value == 0)) continue;
    highest = value;
    winner = j;
  }
  return winner;
}

void Borrow(int64_t num_values, int32_t* values) {
  const std::vector<int32_t> own(values, values + num_values);
  for (int64_t h = 0; h < num_values; ++h) {
    if (own[h] != kEmpty) continue;
    values[h] = 0;
    ProbeValues(h, num_values, [&](int64_t j) {
      if (own[j] == kEmpty) return false;
      values[h] = own[j];
      return true;
    });
  }
}

void ValuesOfRow(const HashFamily& family, const float* row, int32_t* values) {
  if (family.kind == HashKind::kSimHash) return SimHashOfRow(family, row, values);
  const int64_t width = BinWidth(family);
  for (int64_t h = 0; h < NumHashValues(family); ++h) {
    values[h] = Winner(family, row, family.functions + h * width);
  }
  Borrow(NumHashValues(family), values);
}

// Calls visit(row, values of the row by number) for all rows.
template <class Visit>
void ForValues(const HashFamily& family, const float* rows, int64_t num_rows,
               const ParallelFor& parallel, const Visit& visit) {
  const int64_t num_values = NumHashValues(family);
  parallel(num_rows, 40 * num_values, [&](int64_t begin, int64_t end) {
    std::vector<int32_t> values(num_values);
    for (int64_t row = begin; row < end; ++row) {
      ValuesOfRow(family, rows + row * family.dim, values.data());
      visit(row, values.data());
    }
  });
}

}  // namespace

void HashRows(const HashFamily& family, const float* rows, int64_t num_rows,
              int64_t code_stride, const ParallelFor& parallel, int32_t* codes) {
  const BucketMix mix(family);
  const int turn = mix.joined_bits == 32 ? mix.value_bits : 0;
  ForValues(family, rows, num_rows, parallel, [&](int64_t row, const int32_t* values) {
    for (int table = 0; table < family.num_tables; ++table) {
      uint32_t joined = 0;
      for (int i = 0; i < family.num_hashes; ++i) {
        joined = joined << mix.value_bits | (turn > 0 ? joined >> (32 - turn) : 0);
        joined ^= static_cast<uint32_t>(values[i * family.num_tables + table]);
      }
      codes[table * code_stride + row] = mix.BucketOf(joined);
    }
  });
}

void HashValues(const HashFamily& family, const float* rows, int64_t num_rows,
                const ParallelFor& parallel, int32_t* values) {
  const int64_t num_values = NumHashValues(family);
  ForValues(family, rows, num_rows, parallel, [&](int64_t row, const int32_t* of_row) {
    for (int64_t h = 0; h < num_values; ++h) {
      const int64_t table = h % family.num_tables, i = h / family.num_tables;
      values[row * num_values + table * family.num_hashes + i] = of_row[h];
    }
  });
}

}  // namespace largeout
