// How a block hashes a row (lsh_hash.h): the row, or its transform, lies in shared memory,
// each thread finds values of its own, then buckets of its own.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_LSH_HASH_BODY_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_LSH_HASH_BODY_H_

#include <cstdint>
#include <cstring>
#include <limits>

#include "custom_ops/core/lsh_hash_functions.h"
#include "custom_ops/core/lsh_hash_panel.h"
#include "custom_ops/cuda/block.h"
#include "custom_ops/cuda/lsh_hash.h"

namespace largeout {
namespace cuda {

inline constexpr int kHashThreads = 128;

LARGEOUT_HOST_DEVICE inline bool IsSimHash(const HashFamily& family) {
  return family.kind == HashKind::kSimHash;
}

// Numbers of a row: SimHash keeps its rotated form and the projections of one block.
LARGEOUT_HOST_DEVICE inline int64_t HashedNumbers(const HashFamily& family) {
  return IsSimHash(family) ? 2 * PaddedDim(family) : family.dim;
}

// The memory of a block: numbers, values, and a flag a thread.
LARGEOUT_HOST_DEVICE inline int64_t HashBlockBytes(const HashFamily& family, int threads) {
  return 4 * (HashedNumbers(family) + NumHashValues(family) + threads);
}

// Never fused with a sum: the CPU rounds the product too (core/lsh_hash_projections_simd.cc).
LARGEOUT_DEVICE inline float RoundedProduct(float a, float b) {
#ifdef __CUDA_ARCH__
  return __fmul_rn(a, b);
#else
  volatile float product = a * b;
  return product;
#endif
}

LARGEOUT_DEVICE inline float NumberOf(int32_t bits) {
  float number;
  memcpy(&number, &bits, sizeof(number));
  return number;
}

struct HashBody {
  HashFamily family;
  BucketRule rule;
  const float* rows;
  int64_t num_rows;
  HashCodes codes;         // without codes where values are wanted
  int32_t* single_values;  // [num_rows, num_tables, num_hashes] or null
  char* scratch;           // HashBlockBytes a block, or null: shared memory is enough

  template <class Block>
  LARGEOUT_DEVICE void operator()(const Block& block, char* shared) const {
    const int64_t bytes = HashBlockBytes(family, block.size());
    char* memory = scratch == nullptr ? shared : scratch + block.index() * bytes;
    auto* numbers = reinterpret_cast<float*>(memory);
    auto* values = reinterpret_cast<int32_t*>(numbers + HashedNumbers(family));
    for (int64_t row = block.index(); row < num_rows; row += block.num_blocks()) {
      const float* from = rows + row * family.dim;
      if (IsSimHash(family)) {
        FindSigns(block, from, numbers, values);
      } else {
        FindWinners(block, from, numbers, values);
      }
      Write(block, row, values);
    }
  }

 private:
  // Number k of a row as the CPU's panels have it.
  LARGEOUT_DEVICE float Number(const float* row, int64_t k) const {
    return k < family.dim ? InPanel(row[k], AbsentFor(family.kind)) : 0.0f;
  }

  // The fast Hadamard transform, in the order of additions of the CPU's.
  template <class Block>
  LARGEOUT_DEVICE static void Hadamard(const Block& block, int64_t size, float* numbers) {
    for (int64_t half = 1; half < size; half *= 2) {
      block.ForEachThread([&](int t) {
        for (int64_t pair = t; pair < size / 2; pair += block.size()) {
          const int64_t i = 2 * pair - (pair & (half - 1));
          const float x = numbers[i], y = numbers[i + half];
          numbers[i] = x + y;
          numbers[i + half] = x - y;
        }
      });
    }
  }

  // Turns coordinates i and i + size / 2 by the i-th angle.
  template <class Block>
  LARGEOUT_DEVICE static void TurnPairs(const Block& block, const int32_t* cosines,
                                        int64_t size, float* numbers) {
    const int64_t half = size / 2;
    block.ForEachThread([&](int t) {
      for (int64_t i = t; i < half; i += block.size()) {
        const float cosine = NumberOf(cosines[i]), sine = NumberOf(cosines[half + i]);
        const float x = numbers[i], y = numbers[half + i];
        numbers[i] = RoundedProduct(x, cosine) + RoundedProduct(y, sine);
        numbers[half + i] = RoundedProduct(y, cosine) - RoundedProduct(x, sine);
      }
    });
  }

  template <class Block>
  LARGEOUT_DEVICE void FindSigns(const Block& block, const float* row, float* spread,
                                 int32_t* values) const {
    const int64_t size = PaddedDim(family), num_values = NumHashValues(family);
    float* projections = spread + size;
    const int32_t* signs = family.functions;
    block.ForEachThread([&](int t) {
      for (int64_t k = t; k < size; k += block.size()) {
        spread[k] = RoundedProduct(Number(row, k), NumberOf(signs[k]));
      }
    });
    Hadamard(block, size, spread);
    TurnPairs(block, family.functions + size, size, spread);
    for (int64_t first = 0; first < num_values; first += size) {
      signs = family.functions + 2 * size + first;
      block.ForEachThread([&](int t) {
        for (int64_t k = t; k < size; k += block.size()) {
          projections[k] = RoundedProduct(spread[k], NumberOf(signs[k]));
        }
      });
      Hadamard(block, size, projections);
      block.ForEachThread([&](int t) {
        for (int64_t k = t; k < size && first + k < num_values; k += block.size()) {
          values[first + k] = projections[k] > 0;
        }
      });
    }
  }

  // The place in bin h of its highest number, the first of equals.
  LARGEOUT_DEVICE int32_t Winner(const float* numbers, int64_t h) const {
    constexpr float kLowest = -std::numeric_limits<float>::infinity();
    const int64_t width = BinWidth(family);
    const int32_t* bin = family.functions + h * width;
    float highest = kLowest;
    int32_t winner = 0;
    for (int32_t j = 0; j < width; ++j) {
      const bool known = 0 <= bin[j] && bin[j] < family.dim;
      const float number = known ? numbers[bin[j]] : kLowest;
      if (number > highest) {
        highest = number;
        winner = j;
      }
    }
    return family.kind == HashKind::kDwta && highest == kLowest ? kNoValue : winner;
  }

  template <class Block>
  LARGEOUT_DEVICE void FindWinners(const Block& block, const float* row, float* numbers,
                                   int32_t* values) const {
    const int64_t num_values = NumHashValues(family);
    int32_t* full = values + num_values;
    block.ForEachThread([&](int t) {
      for (int64_t k = t; k < family.dim; k += block.size()) numbers[k] = Number(row, k);
    });
    block.ForEachThread([&](int t) {
      full[t] = 0;
      for (int64_t h = t; h < num_values; h += block.size()) {
        values[h] = Winner(numbers, h);
        full[t] |= values[h] != kNoValue;
      }
    });
  }

  LARGEOUT_DEVICE int32_t ValueAt(const int32_t* values, int64_t h, int threads) const {
    if (values[h] != kNoValue) return values[h];
    const int64_t num_values = NumHashValues(family);
    const int32_t* full = values + num_values;
    for (int t = 0; t < threads; ++t) {
      if (full[t] != 0) return values[LenderOf(h, num_values, values)];
    }
    return 0;
  }

  template <class Block>
  LARGEOUT_DEVICE void Write(const Block& block, int64_t row, const int32_t* values) const {
    const int64_t num_values = NumHashValues(family);
    block.ForEachThread([&](int t) {
      for (int64_t i = t; single_values != nullptr && i < num_values; i += block.size()) {
        const int64_t table = i / family.num_hashes, number = i % family.num_hashes;
        single_values[row * num_values + i] =
            ValueAt(values, number * family.num_tables + table, block.size());
      }
      for (int table = t; codes.codes != nullptr && table < family.num_tables;
           table += block.size()) {
        uint32_t joined = 0;
        for (int64_t i = 0; i < family.num_hashes; ++i) {
          const int32_t value = ValueAt(values, i * family.num_tables + table, block.size());
          joined = JoinValue(joined, static_cast<uint32_t>(value), rule.value_bits);
        }
        codes.codes[row * codes.row_stride + table * codes.table_stride] =
            static_cast<int32_t>(BucketOfJoined(joined, rule));
      }
    });
  }
};

}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_LSH_HASH_BODY_H_
