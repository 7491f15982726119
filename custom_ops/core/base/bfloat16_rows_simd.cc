#include "custom_ops/core/base/bfloat16_rows_simd.h"

#include <cstring>

namespace largeout {
namespace LARGEOUT_SIMD {
namespace {

// A block of columns takes 8 draws of 128 random bits: column 8 p + i of the block takes the
// p-th 16 bits of its i-th draw. So all loops are over draws, and are vectorised (if they are
// not unrolled first).
constexpr int kDraws = 8;
constexpr int kColumns = 8 * kDraws;
constexpr uint32_t kInfinity = 0x7F800000, kLargest = 0x7F7F0000;

struct Draws {
  uint32_t words[4][kDraws];
};

// The draws first .. first + kDraws - 1: those of BitsOfDraw in philox.h, which has std
// templates.
inline Draws DrawFrom(uint64_t first, const RoundedRows& table) {
  Draws draws;
  auto& word = draws.words;
#pragma GCC unroll 1
  for (int i = 0; i < kDraws; ++i) {
    word[0][i] = static_cast<uint32_t>(first + i);
    word[1][i] = static_cast<uint32_t>((first + i) >> 32);
    word[2][i] = static_cast<uint32_t>(table.seed >> 32);
    word[3][i] = static_cast<uint32_t>(table.step >> 32);
  }
  auto key0 = static_cast<uint32_t>(table.seed), key1 = static_cast<uint32_t>(table.step);
  for (int round = 0; round < 10; ++round) {
#pragma GCC unroll 1
    for (int i = 0; i < kDraws; ++i) {
      const uint64_t product0 = uint64_t{0xD2511F53} * word[0][i];
      const uint64_t product1 = uint64_t{0xCD9E8D57} * word[2][i];
      word[0][i] = static_cast<uint32_t>(product1 >> 32) ^ word[1][i] ^ key0;
      word[1][i] = static_cast<uint32_t>(product1);
      word[2][i] = static_cast<uint32_t>(product0 >> 32) ^ word[3][i] ^ key1;
      word[3][i] = static_cast<uint32_t>(product0);
    }
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
  return draws;
}

// The bits of a float, rounded by random bits below 2^16.
inline uint32_t Rounded(uint32_t bits, uint32_t random) {
  const uint32_t magnitude = bits & 0x7FFFFFFF;
  // Infinity and the largest numbers are cut off. NaN must not lose all bits of its fraction.
  const uint32_t addend = magnitude >= kLargest ? 0 : random;
  const uint32_t quiet = magnitude > kInfinity ? 0x400000 : 0;
  return ((bits + addend) | quiet) >> 16;
}

inline void RoundBlock(const uint32_t* bits, const Draws& draws, uint16_t* to) {
  for (int word = 0; word < 4; ++word) {
    const uint32_t* low = bits + 2 * word * kDraws;
    uint16_t* to_low = to + 2 * word * kDraws;
#pragma GCC unroll 1
    for (int i = 0; i < kDraws; ++i) {
      const uint32_t random = draws.words[word][i];
      to_low[i] = static_cast<uint16_t>(Rounded(low[i], random & 0xFFFF));
      to_low[kDraws + i] = static_cast<uint16_t>(Rounded(low[kDraws + i], random >> 16));
    }
  }
}

}  // namespace

void WidenRow(const uint16_t* row, int64_t dim, float* to) {
  for (int64_t i = 0; i < dim; ++i) {
    const uint32_t bits = static_cast<uint32_t>(row[i]) << 16;
    std::memcpy(to + i, &bits, sizeof(bits));
  }
}

void StoreRounded(const float* values, int64_t dim, int64_t row, const RoundedRows& table) {
  const int64_t draws_per_row = (dim + kColumns - 1) / kColumns * kDraws;
  auto draw = static_cast<uint64_t>(row * draws_per_row);
  uint32_t bits[kColumns] = {};
  uint16_t rounded[kColumns];
  for (int64_t column = 0; column < dim; column += kColumns, draw += kDraws) {
    const int64_t count = dim - column < kColumns ? dim - column : kColumns;
    std::memcpy(bits, values + column, count * sizeof(float));
    RoundBlock(bits, DrawFrom(draw, table), rounded);
    std::memcpy(table.rows + row * dim + column, rounded, count * sizeof(uint16_t));
  }
}

}  // namespace LARGEOUT_SIMD
}  // namespace largeout
