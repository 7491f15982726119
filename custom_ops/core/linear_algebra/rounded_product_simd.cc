#include "custom_ops/core/linear_algebra/rounded_product_simd.h"

#include "custom_ops/core/linear_algebra/bfloat16_pairs.h"

namespace largeout {
namespace LARGEOUT_SIMD {
namespace {

inline int64_t Padded(int64_t size) {
  return (size + kPairDepth - 1) / kPairDepth * kPairDepth;
}

}  // namespace

void PairAlong(const FloatBlock& from, Pair* to, int64_t to_stride) {
  for (int64_t r = 0; r < Padded(from.rows); ++r) {
    PackRow(from.data + r * from.stride, r < from.rows ? from.columns : 0, Padded(from.columns),
            to + r * to_stride);
  }
}

void PairDown(const FloatBlock& from, Pair* to, int64_t to_stride) {
  const auto row = [&](int64_t r) {
    return r < from.rows ? from.data + r * from.stride : nullptr;
  };
  for (int64_t r = 0; r < Padded(from.rows); r += 2) {
    PairRows(row(r), row(r + 1), from.columns, Padded(from.columns), to + r / 2 * to_stride);
  }
}

void TransposePairs(const PairMatrix& from, int64_t rows, int64_t columns, Pair* to,
                    int64_t to_stride) {
  for (int64_t r = 0; r < rows; r += kPairTile) {
    for (int64_t c = 0; c < columns; c += kPairTile) {
      TransposeTile(from.data + r * from.stride + c, from.stride, to + c * to_stride + r,
                    to_stride);
    }
  }
}

}  // namespace LARGEOUT_SIMD
}  // namespace largeout
