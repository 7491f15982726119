#include "custom_ops/core/lsh_hash_simd.h"

#include "custom_ops/core/simd.h"

namespace largeout {
namespace LARGEOUT_SIMD {
namespace {

typedef uint32_t Words __attribute__((vector_size(kLanes * sizeof(uint32_t))));

constexpr float kLowest = -__builtin_inff();

inline Ints LoadInts(const int32_t* from) {
  Ints value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

inline void StoreInts(Ints value, int32_t* to) { std::memcpy(to, &value, sizeof(value)); }

// Keeps the compiler from fusing a product with the sum that follows: rounding,
// and so the hashes, would depend on the instruction set.
inline Floats Rounded(Floats product) {
#if defined(__x86_64__)
  asm("" : "+v"(product));
#endif
  return product;
}

// {a[first], b[first], a[first + 1], b[first + 1], ...}
template <int kFirst>
inline Floats Interleave(Floats a, Floats b) {
  Ints order;
  for (int i = 0; i < kLanes; ++i) order[i] = kFirst + i / 2 + i % 2 * kLanes;
  return __builtin_shuffle(a, b, order);
}

// Interleaving the halves log2(kLanes) times transposes.
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

// The columns of kLanes rows, `count` of kLanes columns, into the panel.
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

// log2(R) steps of the fast Hadamard transform, on coordinates `step` apart; a
// step other than 1 is at least R. The order of additions is the same for any R.
template <int R>
inline void Butterflies(Floats* x) {
#pragma GCC unroll 4
  for (int half = 1; half < R; half *= 2) {
#pragma GCC unroll 16
    for (int i = 0; i < R; ++i) {
      if (i & half) continue;
      const Floats sum = x[i] + x[i + half];
      x[i + half] = x[i] - x[i + half];
      x[i] = sum;
    }
  }
}

template <int R>
inline void HadamardPass(int64_t size, int64_t step, float* data) {
  for (int64_t block = 0; block < size; block += R * step) {
    float* begin = data + block * kHashRows;
    for (float* at = begin; at < begin + step * kHashRows; at += kLanes) {
      Floats x[R];
#pragma GCC unroll 16
      for (int i = 0; i < R; ++i) x[i] = Load(at + i * step * kHashRows);
      Butterflies<R>(x);
#pragma GCC unroll 16
      for (int i = 0; i < R; ++i) Store(x[i], at + i * step * kHashRows);
    }
  }
}

inline float FloatOf(int32_t bits) {
  float number;
  std::memcpy(&number, &bits, sizeof(number));
  return number;
}

// The first pass: steps of the transform of diag(signs) from.
template <int R>
void SignedHadamardPass(const float* from, const int32_t* signs, int64_t size, float* to) {
  for (int64_t block = 0; block < size; block += R) {
    for (int64_t at = block * kHashRows; at < (block + 1) * kHashRows; at += kLanes) {
      Floats x[R];
#pragma GCC unroll 16
      for (int i = 0; i < R; ++i) {
        x[i] = Load(from + at + i * kHashRows) * FloatOf(signs[block + i]);
      }
      Butterflies<R>(x);
#pragma GCC unroll 16
      for (int i = 0; i < R; ++i) Store(x[i], to + at + i * kHashRows);
    }
  }
}

// Turns coordinates i and i + half by the angle with the i-th cosine and sine.
void TurnPairs(const int32_t* cosines, const int32_t* sines, int64_t half, float* data) {
  for (int64_t i = 0; i < half; ++i) {
    const float cosine = FloatOf(cosines[i]), sine = FloatOf(sines[i]);
    for (float* at = data + i * kHashRows; at < data + (i + 1) * kHashRows; at += kLanes) {
      const Floats x = Load(at), y = Load(at + half * kHashRows);
      Store(Rounded(x * cosine) + Rounded(y * sine), at);
      Store(Rounded(y * cosine) - Rounded(x * sine), at + half * kHashRows);
    }
  }
}

// to = H diag(signs) from, not normalised. REQUIRES: size >= 64, a power of two.
void Rotate(const float* from, const int32_t* signs, int64_t size, float* to) {
  constexpr int kRadix = kVectorRegisters / 2;
  SignedHadamardPass<kRadix>(from, signs, size, to);
  int64_t step = kRadix;
  for (; size / step >= kRadix; step *= kRadix) HadamardPass<kRadix>(size, step, to);
  if (size / step == 8) HadamardPass<8>(size, step, to);
  if (size / step == 4) HadamardPass<4>(size, step, to);
  if (size / step == 2) HadamardPass<2>(size, step, to);
}

// kWidth 0: any width.
template <int kWidth, bool kMarkEmpty>
bool FindWinners(const BinFunctions& functions, const float* panel, int32_t* values) {
  const int width = kWidth > 0 ? kWidth : functions.width;
  alignas(64) int32_t numbers[(kWidth + 1) * kLanes];  // in memory: a load costs least here
  for (int i = 0; i < kWidth * kLanes; ++i) numbers[i] = i / kLanes;
  asm("" : : "r"(numbers) : "memory");
  Floats lowest = Broadcast(-kLowest);
  for (int64_t h = 0; h < functions.num_values; ++h) {
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

inline Ints BucketOf(Words joined, const BucketRule& rule) {
  if (rule.joined_bits <= rule.bits) return (Ints)joined;
  const uint32_t mask = 0xffffffffu >> (32 - rule.joined_bits);
  const int half = (rule.joined_bits + 1) / 2;
  joined ^= joined >> half;
  joined = joined * 0x9E3779B1u & mask;
  joined ^= joined >> half;
  joined = joined * 0x85EBCA77u & mask;
  joined ^= joined >> half;
  return (Ints)(joined >> (rule.joined_bits - rule.bits));
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

void ProjectionValues(const ProjectionFunctions& functions, const float* panel, float* scratch,
                      int32_t* values) {
  const int64_t size = functions.padded_dim;
  float* spread = scratch;
  float* projections = scratch + size * kHashRows;
  const int32_t* cosines = functions.factors + size;
  const int32_t* signs = cosines + size;
  Rotate(panel, functions.factors, size, spread);
  TurnPairs(cosines, cosines + size / 2, size / 2, spread);
  for (int64_t h = 0; h < functions.num_values; h += size) {
    Rotate(spread, signs + h, size, projections);
    const int64_t count = functions.num_values - h < size ? functions.num_values - h : size;
    for (int64_t i = 0; i < count * kHashRows; i += kLanes) {
      const Ints positive = Load(projections + i) > 0.0f;
      StoreInts(-positive, values + h * kHashRows + i);
    }
  }
}

void BinValues(const BinFunctions& functions, const float* panel, int32_t* values,
               bool* any_empty) {
  const bool usual = functions.width == 8;
  if (functions.mark_empty) {
    *any_empty = usual ? FindWinners<8, true>(functions, panel, values)
                       : FindWinners<0, true>(functions, panel, values);
  } else {
    *any_empty = usual ? FindWinners<8, false>(functions, panel, values)
                       : FindWinners<0, false>(functions, panel, values);
  }
}

void JoinValues(const BucketRule& rule, const int32_t* values, int64_t num_rows,
                int64_t code_stride, int32_t* codes) {
  for (int table = 0; table < rule.num_tables; ++table) {
    int32_t* to = codes + table * code_stride;
    __builtin_prefetch(to + kHashRows, 1);  // for the next call
    int32_t buckets[kHashRows];
    for (int lane = 0; lane < kHashRows; lane += kLanes) {
      Words joined = {};
      for (int i = 0; i < rule.num_hashes; ++i) {
        const int64_t h = int64_t{i} * rule.num_tables + table;
        joined = joined << rule.value_bits | joined >> (32 - rule.value_bits);
        joined ^= (Words)LoadInts(values + h * kHashRows + lane);
      }
      StoreInts(BucketOf(joined, rule), (num_rows == kHashRows ? to : buckets) + lane);
    }
    if (num_rows < kHashRows) std::memcpy(to, buckets, num_rows * sizeof(int32_t));
  }
}

}  // namespace LARGEOUT_SIMD
}  // namespace largeout
