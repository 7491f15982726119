#include "custom_ops/core/lsh/lsh_hash_simd.h"

#include "custom_ops/core/base/simd.h"
#include "custom_ops/core/lsh/lsh_hash_prefetcher.h"

namespace largeout {
namespace LARGEOUT_SIMD {
namespace {

typedef uint32_t Words __attribute__((vector_size(kLanes * sizeof(uint32_t))));

constexpr float kLowest = -__builtin_inff();

// {a[first], b[first], a[first + 1], b[first + 1], ...}
template <int kFirst>
inline Floats Interleave(Floats a, Floats b) {
  Ints order;
  for (int i = 0; i < kLanes; ++i) order[i] = kFirst + i / 2 + i % 2 * kLanes;
  return __builtin_shuffle(a, b, order);
}

// Interleaving the halves log2(kLanes) times transposes the rows.
inline void Transpose(Floats* rows) {
  for (int step = 1; step < kLanes; step *= 2) {
    Floats mixed[kLanes];
#pragma GCC unroll 16
    for (int i = 0; i < kLanes / 2; ++i) {
      mixed[2 * i] = Interleave<0>(rows[i], rows[i + kLanes / 2]);
      mixed[2 * i + 1] = Interleave<kLanes / 2>(rows[i], rows[i + kLanes / 2]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) rows[i] = mixed[i];
  }
}

template <AbsentNumbers kAbsent>
inline Floats Clean(Floats x) {
  if (kAbsent == AbsentNumbers::kNone) return x;
  const Floats lowest = Broadcast(kLowest);
  if (kAbsent == AbsentNumbers::kNan) return x == x ? x : lowest;
  return (x > 0.0f) | (x < 0.0f) ? x : lowest;
}

// Copies `count` columns of kLanes rows into the panel.
template <AbsentNumbers kAbsent>
inline void FillBlock(const float* rows, int64_t dim, int64_t count, float* panel) {
  Floats block[kLanes];
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) {
    if (count == kLanes) {
      block[i] = Load(rows + i * dim);
    } else {
      block[i] = Floats{};
      std::memcpy(&block[i], rows + i * dim, count * sizeof(float));
    }
  }
  Transpose(block);
  for (int i = 0; i < count; ++i) Store(Clean<kAbsent>(block[i]), panel + i * kHashRows);
}

template <AbsentNumbers kAbsent>
void FillPanel(const float* rows, int64_t dim, float* panel) {
  for (int64_t row = 0; row < kHashRows; row += kLanes) {
    const float* from = rows + row * dim;
    int64_t k = 0;
    for (; k + kLanes <= dim; k += kLanes) {
      FillBlock<kAbsent>(from + k, dim, kLanes, panel + k * kHashRows + row);
    }
    if (k < dim) FillBlock<kAbsent>(from + k, dim, dim - k, panel + k * kHashRows + row);
  }
}

// kWidth 0: any width.
template <int kWidth, bool kMarkEmpty>
bool FindWinners(const BinFunctions& functions, const float* panel,
                 const UpcomingRows& upcoming, int32_t* values) {
  Prefetcher prefetcher(upcoming, functions.num_values);
  const int width = kWidth > 0 ? kWidth : functions.width;
  // In memory, because a load is cheapest here.
  alignas(64) int32_t numbers[(kWidth + 1) * kLanes];
  for (int i = 0; i < kWidth * kLanes; ++i) numbers[i] = i / kLanes;
  asm("" : : "r"(numbers) : "memory");
  Floats lowest = Broadcast(-kLowest);
  for (int64_t h = 0; h < functions.num_values; ++h) {
    prefetcher.Next();
    const int32_t* bin = functions.coordinates + h * width;
    for (int lane = 0; lane < kHashRows; lane += kLanes) {
      Floats highest = Load(panel + int64_t{bin[0]} * kHashRows + lane);
      Ints winner = {};
#pragma GCC unroll 8
      for (int j = 1; j < width; ++j) {
        const Floats x = Load(panel + int64_t{bin[j]} * kHashRows + lane);
        const Ints higher = x > highest;
        const Ints number = kWidth > 0 ? LoadInts(numbers + j * kLanes) : Ints{} + j;
        winner = higher ? number : winner;
        highest = higher ? x : highest;
      }
      if (kMarkEmpty) {
        winner = highest == kLowest ? Ints{} + kNoValue : winner;
        lowest = highest < lowest ? highest : lowest;
      }
      StoreInts(winner, values + h * kHashRows + lane);
    }
  }
  return AnyGreater(Broadcast(-__FLT_MAX__), lowest);
}

// kValueBits 0: any number of bits. The rule is passed by value, because codes might alias it.
template <int kValueBits>
void Join(const BucketRule rule, const int32_t* values, int64_t num_rows, int64_t code_stride,
          int32_t* codes) {
  const int value_bits = kValueBits > 0 ? kValueBits : rule.value_bits;
  const int64_t value_stride = int64_t{rule.num_tables} * kHashRows;
  for (int table = 0; table < rule.num_tables; ++table) {
    int32_t* to = codes + table * code_stride;
    __builtin_prefetch(to + kHashRows, 1);  // for the next call
    int32_t buckets[kHashRows];
    for (int lane = 0; lane < kHashRows; lane += kLanes) {
      const int32_t* value = values + table * kHashRows + lane;
      Words joined = {};
      for (int i = 0; i < rule.num_hashes; ++i, value += value_stride) {
        joined = JoinValue(joined, (Words)LoadInts(value), value_bits);
      }
      StoreInts((Ints)BucketOfJoined(joined, rule),
                (num_rows == kHashRows ? to : buckets) + lane);
    }
    if (num_rows < kHashRows) std::memcpy(to, buckets, num_rows * sizeof(int32_t));
  }
}

}  // namespace

void FillHashPanel(const float* rows, int64_t dim, AbsentNumbers absent, float* panel) {
  switch (absent) {
    case AbsentNumbers::kNone:
      return FillPanel<AbsentNumbers::kNone>(rows, dim, panel);
    case AbsentNumbers::kNan:
      return FillPanel<AbsentNumbers::kNan>(rows, dim, panel);
    case AbsentNumbers::kNanAndZero:
      return FillPanel<AbsentNumbers::kNanAndZero>(rows, dim, panel);
  }
}

void BinValues(const BinFunctions& functions, const float* panel, const UpcomingRows& upcoming,
               int32_t* values, bool* any_empty) {
  const bool usual = functions.width == 8;
  if (functions.mark_empty) {
    *any_empty = usual ? FindWinners<8, true>(functions, panel, upcoming, values)
                       : FindWinners<0, true>(functions, panel, upcoming, values);
  } else {
    *any_empty = usual ? FindWinners<8, false>(functions, panel, upcoming, values)
                       : FindWinners<0, false>(functions, panel, upcoming, values);
  }
}

void JoinValues(const BucketRule& rule, const int32_t* values, int64_t num_rows,
                int64_t code_stride, int32_t* codes) {
  const auto join = rule.value_bits == 1 ? Join<1> : rule.value_bits == 3 ? Join<3> : Join<0>;
  join(rule, values, num_rows, code_stride, codes);
}

}  // namespace LARGEOUT_SIMD
}  // namespace largeout
