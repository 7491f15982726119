#include "custom_ops/core/linear_algebra/dense_product.h"

#include <algorithm>

#include "custom_ops/core/base/rounding.h"
#include "custom_ops/core/base/simd_level.h"

namespace largeout {
namespace {

// How many rows of `out` one thread computes at once: whole tiles, and few enough that all
// threads get about the same number. These rows stay in the second-level cache during the loop
// over blocks of the depth; one such block of a tile's columns of b stays in the first-level
// cache.
constexpr int64_t kMostBlockRows = 48;
constexpr int64_t kRowMultiple = 6;
constexpr int64_t kLeastBlocks = 8;
template <class Number>
constexpr int64_t kBlockDepth = 512 / sizeof(Number);
template <class Number>
constexpr int64_t kTermsPerCycle = 64 / sizeof(Number);

int64_t BlockRows(int64_t rows) {
  const int64_t even = RoundUp(CeilDiv(rows, kLeastBlocks), kRowMultiple);
  return std::clamp(even, kRowMultiple, kMostBlockRows);  // not 0, even if there are no rows
}

// Calls add(block, first row, first k). A block is some rows, a part of the depth and the first
// width_of(last row) columns.
template <class Number, class WidthOf, class Add>
void ForEachBlock(const ProductSize& size, const ParallelFor& parallel, const WidthOf& width_of,
                  const Add& add) {
  const int64_t block_rows = BlockRows(size.rows);
  const int64_t cost = block_rows * size.depth * size.width / kTermsPerCycle<Number>;
  parallel(CeilDiv(size.rows, block_rows), cost, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const int64_t row = block * block_rows;
      const int64_t rows = std::min(block_rows, size.rows - row);
      for (int64_t k = 0; k < size.depth; k += kBlockDepth<Number>) {
        const int64_t depth = std::min(kBlockDepth<Number>, size.depth - k);
        add(ProductSize{rows, depth, width_of(row + rows)}, row, k);
      }
    }
  });
}

template <class Number>
Strided<Number> From(const Strided<Number>& a, int64_t row, int64_t k) {
  return {a.data + row * a.row_stride + k * a.step, a.row_stride, a.step};
}

template <class Number, class WidthOf>
void AddBlocks(const ProductSize& size, const Strided<Number>& a, const Number* b,
               int64_t b_stride, Number* out, int64_t out_stride, const ParallelFor& parallel,
               const WidthOf& width_of) {
  ForEachBlock<Number>(
      size, parallel, width_of, [&](const ProductSize& block, int64_t row, int64_t k) {
        LARGEOUT_SIMD_DISPATCH(AddProduct, block, From(a, row, k), b + k * b_stride, b_stride,
                               out + row * out_stride, out_stride);
      });
}

template <class Number, class WidthOf>
void AddBlocksToDoubles(const ProductSize& size, const Strided<Number>& a,
                        const PaddedMatrixOf<Number>& b, double* out, int64_t out_stride,
                        const ParallelFor& parallel, const WidthOf& width_of) {
  ForEachBlock<Number>(
      size, parallel, width_of, [&](const ProductSize& block, int64_t row, int64_t k) {
        LARGEOUT_SIMD_DISPATCH(AddProductToDoubles, block, From(a, row, k), b.row(k),
                               b.stride(), out + row * out_stride, out_stride);
      });
}

}  // namespace

template <class Number>
void AddProductInBlocks(const ProductSize& size, const Strided<Number>& a, const Number* b,
                        int64_t b_stride, Number* out, int64_t out_stride,
                        const ParallelFor& parallel) {
  AddBlocks(size, a, b, b_stride, out, out_stride, parallel,
            [&](int64_t /*last_row*/) { return size.width; });
}

template <class Number>
void AddProductInBlocks(const Strided<Number>& a, const PaddedMatrixOf<Number>& b,
                        PaddedMatrixOf<Number>* out, const ParallelFor& parallel) {
  AddProductInBlocks({out->rows(), b.rows(), out->padded_width()}, a, b.data(), b.stride(),
                     out->data(), out->stride(), parallel);
}

template <class Number>
void AddLowerProduct(const Strided<Number>& a, const PaddedMatrixOf<Number>& b,
                     PaddedMatrixOf<Number>* out, const ParallelFor& parallel) {
  AddBlocks({out->rows(), b.rows(), out->padded_width()}, a, b.data(), b.stride(), out->data(),
            out->stride(), parallel,
            [&](int64_t last_row) { return RoundUp(last_row, kWidthMultiple); });
}

template <class Number>
void AddProductToDoubles(int64_t rows, const Strided<Number>& a,
                         const PaddedMatrixOf<Number>& b, double* out, int64_t out_stride,
                         const ParallelFor& parallel) {
  AddBlocksToDoubles({rows, b.rows(), b.width()}, a, b, out, out_stride, parallel,
                     [&](int64_t /*last_row*/) { return b.width(); });
}

template <class Number>
void AddLowerProductToDoubles(int64_t rows, const Strided<Number>& a,
                              const PaddedMatrixOf<Number>& b, double* out, int64_t out_stride,
                              const ParallelFor& parallel) {
  AddBlocksToDoubles({rows, b.rows(), b.width()}, a, b, out, out_stride, parallel,
                     [](int64_t last_row) { return last_row; });
}

#define LARGEOUT_INSTANTIATE(Number)                                                          \
  template void AddProductInBlocks(const ProductSize&, const Strided<Number>&, const Number*, \
                                   int64_t, Number*, int64_t, const ParallelFor&);            \
  template void AddProductInBlocks(const Strided<Number>&, const PaddedMatrixOf<Number>&,     \
                                   PaddedMatrixOf<Number>*, const ParallelFor&);              \
  template void AddLowerProduct(const Strided<Number>&, const PaddedMatrixOf<Number>&,        \
                                PaddedMatrixOf<Number>*, const ParallelFor&);                 \
  template void AddProductToDoubles(int64_t, const Strided<Number>&,                          \
                                    const PaddedMatrixOf<Number>&, double*, int64_t,          \
                                    const ParallelFor&);                                      \
  template void AddLowerProductToDoubles(int64_t, const Strided<Number>&,                     \
                                         const PaddedMatrixOf<Number>&, double*, int64_t,     \
                                         const ParallelFor&);
LARGEOUT_INSTANTIATE(float)
LARGEOUT_INSTANTIATE(double)
#undef LARGEOUT_INSTANTIATE

}  // namespace largeout
