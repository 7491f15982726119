// Rows of 8-bit codes on the GPU, with the same codes as core/class_scan/packed_rows.h.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_CODE_ROWS_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_CODE_ROWS_H_

#include <cstdint>
#include <cstring>

#include "custom_ops/core/class_scan/packed_rows_simd.h"
#include "custom_ops/cuda/block_tools.h"
#include "custom_ops/cuda/float_bits.h"

namespace largeout {
namespace cuda {

inline constexpr int kCodeThreads = 128;

// Four codes of a row are followed by four codes of the next row of its group, so that the
// threads that score the rows of a group read consecutive memory.
struct CodeRows {
  int8_t* codes;  // [num_rows / group_rows, width / 4, group_rows, 4]
  float* scales;  // [num_rows], the float of code 1; NaN if the row is not finite
  int64_t width;
  int64_t group_rows;
  float most;  // codes are in [-most, most]

  // The address of codes k to k + 3 of a row. REQUIRES: k is a multiple of 4.
  LARGEOUT_DEVICE int8_t* Four(int64_t row, int64_t k) const {
    return codes + row / group_rows * group_rows * width + k * group_rows +
           row % group_rows * kCodesTogether;
  }
};

// sum + the products of four signed bytes of `a` and of `b`.
LARGEOUT_DEVICE inline int32_t AddProducts(uint32_t a, uint32_t b, int32_t sum) {
#ifdef __CUDA_ARCH__
  return __dp4a(static_cast<int>(a), static_cast<int>(b), sum);
#else
  for (int shift = 0; shift < 32; shift += 8) {
    sum += static_cast<int8_t>(a >> shift) * static_cast<int8_t>(b >> shift);
  }
  return sum;
#endif
}

LARGEOUT_DEVICE inline uint32_t FourCodes(const void* codes) {
#ifdef __CUDA_ARCH__
  return *static_cast<const uint32_t*>(codes);
#else
  uint32_t four;
  memcpy(&four, codes, sizeof(four));
  return four;
#endif
}

struct SixteenCodes {
  uint32_t fours[4];
};

// REQUIRES: `codes` is aligned to 16 bytes.
LARGEOUT_DEVICE inline SixteenCodes LoadSixteenCodes(const int8_t* codes) {
#ifdef __CUDA_ARCH__
  const uint4 fours = *reinterpret_cast<const uint4*>(codes);
  return {{fours.x, fours.y, fours.z, fours.w}};
#else
  RequireAligned(codes);
  SixteenCodes sixteen;
  memcpy(&sixteen, codes, sizeof(sixteen));
  return sixteen;
#endif
}

static_assert(kPackedMultiple % 16 == 0, "codes are read sixteen at a time");

// The sum of the products of `width` codes and `width` bytes. Each group of four bytes starts
// kApart bytes after the previous one. The bits of `turned` are flipped in each group of four
// bytes. REQUIRES: width is a multiple of 16, and `codes` is aligned to 16 bytes.
template <int kApart>
LARGEOUT_DEVICE int32_t SumOfProducts(const int8_t* codes, int width, const void* bytes,
                                      uint32_t turned) {
  const char* four = static_cast<const char*>(bytes);
  int32_t sum = 0;
  for (int k = 0; k < width; k += 16) {
    const SixteenCodes sixteen = LoadSixteenCodes(codes + k);
    LARGEOUT_UNROLL
    for (int i = 0; i < 4; ++i, four += kApart) {
      sum = AddProducts(FourCodes(four) ^ turned, sixteen.fours[i], sum);
    }
  }
  return sum;
}

// Converts rows of floats to codes, one row per block. The largest magnitude becomes `most`.
struct CodeBody {
  const float* rows;  // [num_rows, dim]
  int64_t num_rows;
  int64_t dim;
  CodeRows to;

  static constexpr int kSharedBytes = sizeof(uint32_t);

  template <class Block>
  LARGEOUT_DEVICE void operator()(const Block& block, char* shared) const {
    uint32_t* const largest = reinterpret_cast<uint32_t*>(shared);
    for (int64_t row = block.index(); row < num_rows; row += block.num_blocks()) {
      block.ForEachThread([&](int thread) {
        if (thread == 0) *largest = 0;
      });
      // As integers, magnitudes keep their order, and NaN is above infinity.
      block.ForEachThread([&](int thread) {
        uint32_t most_bits = 0;
        for (int64_t k = thread; k < dim; k += block.size()) {
          const uint32_t bits = BitsOf(rows[row * dim + k]) & 0x7fffffffu;
          most_bits = bits > most_bits ? bits : most_bits;
        }
        RaiseTo(largest, most_bits);
      });
      block.ForEachThread(
          [&](int thread) { Write(row, FloatOf(*largest), thread, block.size()); });
    }
  }

 private:
  LARGEOUT_DEVICE void Write(int64_t row, float largest, int thread, int threads) const {
    const float factor = to.most / largest;
    const bool has_codes = factor > 0.0f && factor < 1e30f;  // else too small, or not finite
    if (thread == 0) to.scales[row] = has_codes ? largest / to.most : largest * 0.0f;
    for (int64_t k = thread; k < to.width; k += threads) {
      const float number = has_codes && k < dim ? rows[row * dim + k] : 0.0f;
      // Adding 1.5 * 2^23 leaves the rounded number in the low bits, in two's complement.
      const float shifted = MultiplyAdd(number, has_codes ? factor : 0.0f, 12582912.0f);
      int8_t* const four = to.Four(row, k / kCodesTogether * kCodesTogether);
      four[k % kCodesTogether] = static_cast<int8_t>(BitsOf(shifted) - 0x4b400000u);
    }
  }
};

}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_CODE_ROWS_H_
