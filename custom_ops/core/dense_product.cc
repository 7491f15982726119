#include "custom_ops/core/dense_product.h"

#include <algorithm>

#include "custom_ops/core/rounding.h"
#include "custom_ops/core/simd_level.h"

namespace largeout {
namespace {

// Rows of `out` that one thread makes at once: whole tiles, and so few that threads have about
// as many. They stay in the second cache while the blocks of the depth go by; one of these, of
// a tile's columns of b, in the first.
constexpr int64_t kMostBlockRows = 48;
constexpr int64_t kRowMultiple = 6;
constexpr int64_t kLeastBlocks = 8;
constexpr int64_t kBlockDepth = 64;
constexpr int64_t kTermsPerCycle = 8;

int64_t BlockRows(int64_t rows) {
  const int64_t even = RoundUp(CeilDiv(rows, kLeastBlocks), kRowMultiple);
  return std::clamp(even, kRowMultiple, kMostBlockRows);  // not 0 where there is no row
}

template <class WidthOf>
void AddBlocks(const ProductSize& size, const Strided<double>& a, const double* b,
               int64_t b_stride, double* out, int64_t out_stride, const ParallelFor& parallel,
               const WidthOf& width_of) {
  const int64_t block_rows = BlockRows(size.rows);
  const int64_t cost = block_rows * size.depth * size.width / kTermsPerCycle;
  const auto add = [&](int64_t row, int64_t rows, int64_t k) {
    const int64_t depth = std::min(kBlockDepth, size.depth - k);
    const Strided<double> part = {a.data + row * a.row_stride + k * a.step, a.row_stride,
                                  a.step};
    LARGEOUT_SIMD_DISPATCH(AddProduct, {rows, depth, width_of(row + rows)}, part,
                           b + k * b_stride, b_stride, out + row * out_stride, out_stride);
  };
  parallel(CeilDiv(size.rows, block_rows), cost, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const int64_t row = block * block_rows;
      for (int64_t k = 0; k < size.depth; k += kBlockDepth) {
        add(row, std::min(block_rows, size.rows - row), k);
      }
    }
  });
}

}  // namespace

void AddProductInBlocks(const ProductSize& size, const Strided<double>& a, const double* b,
                        int64_t b_stride, double* out, int64_t out_stride,
                        const ParallelFor& parallel) {
  AddBlocks(size, a, b, b_stride, out, out_stride, parallel,
            [&](int64_t /*last_row*/) { return size.width; });
}

void AddProductInBlocks(const Strided<double>& a, const PaddedMatrix& b, PaddedMatrix* out,
                        const ParallelFor& parallel) {
  AddProductInBlocks({out->rows(), b.rows(), out->padded_width()}, a, b.data(), b.stride(),
                     out->data(), out->stride(), parallel);
}

void AddLowerProduct(const Strided<double>& a, const PaddedMatrix& b, PaddedMatrix* out,
                     const ParallelFor& parallel) {
  AddBlocks({out->rows(), b.rows(), out->padded_width()}, a, b.data(), b.stride(), out->data(),
            out->stride(), parallel,
            [&](int64_t last_row) { return RoundUp(last_row, kWidthMultiple); });
}

}  // namespace largeout
