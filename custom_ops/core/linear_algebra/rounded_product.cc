#include "custom_ops/core/linear_algebra/rounded_product.h"

#include <algorithm>

#include "custom_ops/core/base/aligned_array.h"
#include "custom_ops/core/base/rounding.h"
#include "custom_ops/core/base/simd_level.h"
#include "custom_ops/core/linear_algebra/rounded_product_simd.h"

namespace largeout {
namespace {

// How many rows of `out`, or columns of b, are computed at once: as many as two tiles of AMX
// have.
constexpr int64_t kBlock = kPairDepth;
constexpr int64_t kTermsPerCycle = 256;
constexpr int64_t kPackedPerCycle = 2;

// The distance between rows of `pairs` pairs. It is not a power of 2: such rows would share
// cache sets.
int64_t StrideOf(int64_t pairs) { return pairs + kPairTile; }

// A matrix of pairs that owns its memory.
class Pairs {
 public:
  Pairs(int64_t rows, int64_t columns) : stride_(StrideOf(columns)), data_(rows * stride_) {}
  Pair* at(int64_t row, int64_t column) const { return data_.get() + row * stride_ + column; }
  int64_t stride() const { return stride_; }
  PairMatrix matrix() const { return {data_.get(), stride_}; }

 private:
  const int64_t stride_;
  const AlignedArray<Pair> data_;
};

// Packs blocks of factors of a given depth into pairs. For one thread.
class Packer {
 public:
  explicit Packer(int64_t depth)
      : depth_(RoundUp(depth, kPairDepth)),
        by_columns_(kBlock, depth_ / 2),
        by_rows_(depth_ / 2, kBlock) {}

  // to [kBlock, depth / 2] = rows of the left factor, starting at `first`.
  void PackRows(const Factor& a, int64_t first, const Pairs& to) const {
    const int64_t rows = std::min(kBlock, a.rows - first);
    if (!a.transposed) {
      const FloatBlock block = {a.data + first * a.columns, a.columns, rows, a.columns};
      LARGEOUT_SIMD_DISPATCH(PairAlong, block, to.at(0, 0), to.stride());
      return;
    }
    const FloatBlock block = {a.data + first, a.rows, a.columns, rows};
    LARGEOUT_SIMD_DISPATCH(PairDown, block, by_rows_.at(0, 0), by_rows_.stride());
    LARGEOUT_SIMD_DISPATCH(TransposePairs, by_rows_.matrix(), depth_ / 2, kBlock, to.at(0, 0),
                           to.stride());
  }

  // Columns of to [depth / 2, columns of b], starting at `first`.
  void PackColumns(const Factor& b, int64_t first, const Pairs& to) const {
    const int64_t columns = std::min(kBlock, b.columns - first);
    if (!b.transposed) {
      const FloatBlock block = {b.data + first, b.columns, b.rows, columns};
      LARGEOUT_SIMD_DISPATCH(PairDown, block, to.at(0, first), to.stride());
      return;
    }
    const FloatBlock block = {b.data + first * b.rows, b.rows, columns, b.rows};
    LARGEOUT_SIMD_DISPATCH(PairAlong, block, by_columns_.at(0, 0), by_columns_.stride());
    LARGEOUT_SIMD_DISPATCH(TransposePairs, by_columns_.matrix(), kBlock, depth_ / 2,
                           to.at(0, first), to.stride());
  }

 private:
  const int64_t depth_;
  const Pairs by_columns_, by_rows_;
};

}  // namespace

void RoundedProduct(const Factor& a, const Factor& b, const ParallelFor& parallel, float* out) {
  const int64_t depth = RoundUp(a.columns, kPairDepth), width = RoundUp(b.columns, kBlock);
  const Pairs right(depth / 2, width);
  parallel(width / kBlock, kBlock * depth / kPackedPerCycle, [&](int64_t begin, int64_t end) {
    const Packer packer(depth);
    for (int64_t i = begin; i < end; ++i) packer.PackColumns(b, i * kBlock, right);
  });
  const PairProduct product = ActivePairProduct();
  const int64_t cost = kBlock * (depth * width / kTermsPerCycle + depth / kPackedPerCycle);
  parallel(CeilDiv(a.rows, kBlock), cost, [&](int64_t begin, int64_t end) {
    const Packer packer(depth);
    const Pairs left(kBlock, depth / 2);
    const AlignedFloats sums(kBlock * StrideOf(width));
    for (int64_t i = begin; i < end; ++i) {
      packer.PackRows(a, i * kBlock, left);
      std::fill_n(sums.get(), kBlock * StrideOf(width), 0.0f);
      product({kBlock, depth, width}, left.matrix(), right.matrix(), sums.get(),
              StrideOf(width));
      const int64_t rows = std::min(kBlock, a.rows - i * kBlock);
      for (int64_t r = 0; r < rows; ++r) {
        std::copy_n(sums.get() + r * StrideOf(width), b.columns,
                    out + (i * kBlock + r) * b.columns);
      }
    }
  });
}

}  // namespace largeout
