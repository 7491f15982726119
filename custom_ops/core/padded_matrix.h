// A row-major matrix of doubles whose rows are whole vectors, for dense products.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_PADDED_MATRIX_H_
#define LARGEOUT_CUSTOM_OPS_CORE_PADDED_MATRIX_H_

#include <algorithm>
#include <cstdint>

#include "custom_ops/core/arena.h"
#include "custom_ops/core/dense_product_simd.h"
#include "custom_ops/core/parallel.h"
#include "custom_ops/core/rounding.h"

namespace largeout {

// [rows, width], each row followed by zeros up to `padded_width`. Its numbers are not
// initialised. Lives as long as the arena that it is made of.
class PaddedMatrix {
 public:
  PaddedMatrix(int64_t rows, int64_t width, Arena* arena)
      : rows_(rows),
        width_(width),
        padded_width_(RoundUp(width, kWidthMultiple)),
        stride_(Stride(width)),
        data_(arena->Take(rows * stride_)) {
    for (int64_t i = 0; i < rows; ++i) std::fill_n(row(i) + width, padded_width_ - width, 0.0);
  }

  // What a matrix takes of an arena.
  static int64_t Size(int64_t rows, int64_t width) { return rows * Stride(width); }

  int64_t rows() const { return rows_; }
  int64_t width() const { return width_; }
  int64_t padded_width() const { return padded_width_; }
  int64_t stride() const { return stride_; }
  double* data() const { return data_; }
  double* row(int64_t i) const { return data_ + i * stride_; }

  // Some of the rows, where they are.
  PaddedMatrix Rows(int64_t first, int64_t count) const {
    PaddedMatrix rows = *this;
    rows.rows_ = count;
    rows.data_ = row(first);
    return rows;
  }

  // As the left factor of a product: itself, and its transpose.
  Strided<double> view() const { return {data(), stride_, 1}; }
  Strided<double> transposed() const { return {data(), 1, stride_}; }

  void Fill(double value, const ParallelFor& parallel) {
    ForEachRow(rows_, width_ / 8, parallel,
               [&](int64_t i) { std::fill_n(row(i), width_, value); });
  }

  // Takes the numbers of rows that follow each other without a gap.
  void CopyFrom(const double* from, const ParallelFor& parallel) {
    ForEachRow(rows_, width_ / 2, parallel,
               [&](int64_t i) { std::copy_n(from + i * width_, width_, row(i)); });
  }

 private:
  // Rows that are a multiple of so many numbers apart share the sets of a cache.
  static constexpr int64_t kCacheSetMultiple = 64;

  static int64_t Stride(int64_t width) {
    const int64_t padded = RoundUp(width, kWidthMultiple);
    return padded % kCacheSetMultiple == 0 ? padded + kWidthMultiple : padded;
  }

  int64_t rows_, width_, padded_width_, stride_;
  double* data_;
};

// to [columns, rows] = the transpose of from [rows, columns]; rows are so far apart.
inline void TransposeInto(const double* from, int64_t from_stride, int64_t rows,
                          int64_t columns, double* to, int64_t to_stride,
                          const ParallelFor& parallel) {
  constexpr int64_t kBlock = 8;  // lines of a cache are written whole, and read once
  ForEachRow(CeilDiv(rows, kBlock), 2 * kBlock * columns, parallel, [&](int64_t block) {
    const int64_t first = block * kBlock;
    const int64_t count = std::min(kBlock, rows - first);
    const double* part = from + first * from_stride;
    const auto transpose = [&](int64_t size) {
      for (int64_t j = 0; j < columns; ++j) {
        double* target = to + j * to_stride + first;
        for (int64_t k = 0; k < size; ++k) target[k] = part[k * from_stride + j];
      }
    };
    count == kBlock ? transpose(kBlock) : transpose(count);
  });
}

// The elements [i, j] of matrix [size, size] with j > i become those [j, i].
inline void MirrorLower(int64_t size, double* matrix, int64_t stride,
                        const ParallelFor& parallel) {
  constexpr int64_t kBlock = 8;  // lines of a cache are read once
  ForEachRow(CeilDiv(size, kBlock), kBlock * size, parallel, [&](int64_t block) {
    const int64_t first = block * kBlock;
    for (int64_t j = first + 1; j < size; ++j) {
      const int64_t last = std::min(first + kBlock, j);
      for (int64_t i = first; i < last; ++i) matrix[i * stride + j] = matrix[j * stride + i];
    }
  });
}

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_PADDED_MATRIX_H_
