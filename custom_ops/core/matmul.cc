#include "custom_ops/core/matmul.h"

#include <algorithm>

#include "custom_ops/core/aligned_array.h"
#include "custom_ops/core/rounding.h"
#include "custom_ops/core/simd_level.h"

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace largeout {
namespace {

// A panel of columns of b, and of a what is beside it, are in the first cache: kDepth rows of
// b and kRows of a. Few rows would not pay for the packing of a transposed b, nor a second pass
// over them for a panel of half its depth.
constexpr int64_t kPanelColumns = 64;
constexpr int64_t kDepth = 64;
constexpr int64_t kDepthOfTransposed = 128;
constexpr int64_t kRows = 48;
constexpr int64_t kRowsBesideTransposed = 288;
constexpr int64_t kRowMultiple = 6;  // divides both
constexpr int64_t kTermsPerCycle = 16;

// to [columns, stride] = the transpose of from [rows, columns], whose rows are `step` apart.
void TransposeInto(const float* from, int64_t step, int64_t rows, int64_t columns, float* to,
                   int64_t stride) {
  int64_t r = 0;
#if defined(__SSE2__)
  for (; r + 4 <= rows; r += 4) {
    int64_t k = 0;
    for (; k + 4 <= columns; k += 4) {
      const float* at = from + r * step + k;
      __m128 a = _mm_loadu_ps(at), b = _mm_loadu_ps(at + step);
      __m128 c = _mm_loadu_ps(at + 2 * step), d = _mm_loadu_ps(at + 3 * step);
      _MM_TRANSPOSE4_PS(a, b, c, d);
      float* target = to + k * stride + r;
      _mm_storeu_ps(target, a);
      _mm_storeu_ps(target + stride, b);
      _mm_storeu_ps(target + 2 * stride, c);
      _mm_storeu_ps(target + 3 * stride, d);
    }
    for (; k < columns; ++k) {
      for (int64_t i = r; i < r + 4; ++i) to[k * stride + i] = from[i * step + k];
    }
  }
#endif
  for (; r < rows; ++r) {
    for (int64_t k = 0; k < columns; ++k) to[k * stride + r] = from[r * step + k];
  }
}

// One thread's part of a product: some rows of `out`, and some of its columns.
class BlockProduct {
 public:
  BlockProduct(const ProductSize& size, const Strided<float>& a, const Strided<float>& b,
               float* out)
      : size_(size),
        a_(a),
        b_(b),
        out_(out),
        packed_a_(a.step == 1 ? 0 : kRows * kDepthOfTransposed),
        most_depth_(b.step == 1 ? kDepth : kDepthOfTransposed),
        packed_b_(most_depth_ * kPanelColumns),
        last_columns_(
            size.width % kWidthMultiple == 0 ? 0 : kRowsBesideTransposed * kPanelColumns) {}

  // REQUIRES: at most kRowsBesideTransposed rows.
  void Run(int64_t first_row, int64_t rows, int64_t first_column, int64_t last_column) {
    for (int64_t r = first_row; r < first_row + rows; ++r) {
      std::fill(out_ + r * size_.width + first_column, out_ + r * size_.width + last_column,
                0.0f);
    }
    for (int64_t k = 0; k < size_.depth; k += most_depth_) {
      const int64_t depth = std::min(most_depth_, size_.depth - k);
      const Strided<float> a = PackedA(first_row, rows, k, depth);
      for (int64_t j = first_column; j < last_column; j += kPanelColumns) {
        AddPanel(a, first_row, rows, k, depth, j, std::min(kPanelColumns, last_column - j));
      }
    }
  }

 private:
  // Rows of a: where they are, or together if those of a transpose are far apart.
  Strided<float> PackedA(int64_t row, int64_t rows, int64_t k, int64_t depth) {
    const float* from = a_.data + row * a_.row_stride + k * a_.step;
    if (a_.step == 1) return {from, a_.row_stride, 1};
    for (int64_t i = 0; i < depth; ++i) {
      std::copy_n(from + i * a_.step, rows, packed_a_.get() + i * kRows);
    }
    return {packed_a_.get(), 1, kRows};
  }

  void AddPanel(const Strided<float>& a, int64_t row, int64_t rows, int64_t k, int64_t depth,
                int64_t column, int64_t columns) {
    float* out = out_ + row * size_.width + column;
    if (columns % kWidthMultiple == 0) {
      return Add(a, rows, k, depth, column, columns, columns, out, size_.width);
    }
    float* const padded = last_columns_.get();
    for (int64_t r = 0; r < rows; ++r) {
      std::copy_n(out + r * size_.width, columns, padded + r * kPanelColumns);
    }
    Add(a, rows, k, depth, column, columns, RoundUp(columns, kWidthMultiple), padded,
        kPanelColumns);
    for (int64_t r = 0; r < rows; ++r) {
      std::copy_n(padded + r * kPanelColumns, columns, out + r * size_.width);
    }
  }

  void Add(const Strided<float>& a, int64_t rows, int64_t k, int64_t depth, int64_t column,
           int64_t columns, int64_t padded_columns, float* out, int64_t out_stride) {
    const float* b = b_.data + k * b_.row_stride + column * b_.step;
    int64_t b_stride = b_.row_stride;
    if (b_.step != 1 || columns != padded_columns) {
      PackB(b, depth, columns);
      b = packed_b_.get();
      b_stride = kPanelColumns;
    }
    LARGEOUT_SIMD_DISPATCH(AddProduct, {rows, depth, padded_columns}, a, b, b_stride, out,
                           out_stride);
  }

  // What the columns beyond `columns` hold has no effect on others.
  void PackB(const float* from, int64_t depth, int64_t columns) {
    if (b_.step != 1) {
      TransposeInto(from, b_.step, columns, depth, packed_b_.get(), kPanelColumns);
      return;
    }
    for (int64_t k = 0; k < depth; ++k) {
      std::copy_n(from + k * b_.row_stride, columns, packed_b_.get() + k * kPanelColumns);
    }
  }

  const ProductSize size_;
  const Strided<float> a_, b_;
  float* const out_;
  const AlignedFloats packed_a_;
  const int64_t most_depth_;
  const AlignedFloats packed_b_, last_columns_;
};

// Rows of blocks that are about as large, whole tiles and at most `most` of them.
int64_t EvenRows(int64_t rows, int64_t most) {
  const int64_t even = CeilDiv(rows, std::max<int64_t>(CeilDiv(rows, most), 1));
  return std::max(RoundUp(even, kRowMultiple), kRowMultiple);
}

}  // namespace

void Multiply(const ProductSize& size, const Strided<float>& a, const Strided<float>& b,
              const ParallelFor& parallel, float* out) {
  const bool transposed = b.step != 1;
  // A transposed b is cut into panels, another into none: its rows are read where they are.
  const int64_t most_rows = transposed && a.step == 1 ? kRowsBesideTransposed : kRows;
  const int64_t block_rows = EvenRows(size.rows, most_rows);
  const int64_t block_columns = transposed ? kPanelColumns : std::max<int64_t>(size.width, 1);
  const int64_t row_blocks = CeilDiv(size.rows, block_rows);
  const int64_t blocks = row_blocks * CeilDiv(size.width, block_columns);
  const int64_t terms = block_rows * std::min(block_columns, size.width) * size.depth;
  parallel(blocks, terms / kTermsPerCycle, [&](int64_t begin, int64_t end) {
    BlockProduct product(size, a, b, out);
    for (int64_t block = begin; block < end; ++block) {
      const int64_t row = block % row_blocks * block_rows;
      const int64_t column = block / row_blocks * block_columns;
      product.Run(row, std::min(block_rows, size.rows - row), column,
                  std::min(size.width, column + block_columns));
    }
  });
}

}  // namespace largeout
