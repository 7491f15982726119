// Row-major matrices whose rows are whole vectors, for dense products.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_LINEAR_ALGEBRA_PADDED_MATRIX_H_
#define LARGEOUT_CUSTOM_OPS_CORE_LINEAR_ALGEBRA_PADDED_MATRIX_H_

#include <algorithm>
#include <cstdint>

#include "custom_ops/core/base/arena.h"
#include "custom_ops/core/base/parallel.h"
#include "custom_ops/core/base/rounding.h"
#include "custom_ops/core/linear_algebra/dense_product_simd.h"
#include "custom_ops/core/linear_algebra/row_arithmetic.h"

namespace largeout {

// A matrix [rows, width] whose rows are padded with zeros up to `padded_width`. Its numbers are
// not initialised. It is valid as long as the arena that provides its memory.
template <class Number>
class PaddedMatrixOf {
 public:
  PaddedMatrixOf(int64_t rows, int64_t width, Arena* arena)
      : rows_(rows),
        width_(width),
        padded_width_(RoundUp(width, kWidthMultiple)),
        stride_(Stride(width)),
        data_(arena->Take<Number>(rows * stride_)) {
    for (int64_t i = 0; i < rows; ++i)
      std::fill_n(row(i) + width, padded_width_ - width, Number{0});
  }

  // The memory that a matrix takes from an arena.
  static int64_t Size(int64_t rows, int64_t width) {
    return Arena::Doubles<Number>(rows * Stride(width));
  }

  int64_t rows() const { return rows_; }
  int64_t width() const { return width_; }
  int64_t padded_width() const { return padded_width_; }
  int64_t stride() const { return stride_; }
  Number* data() const { return data_; }
  Number* row(int64_t i) const { return data_ + i * stride_; }

  // A view of some of the rows.
  PaddedMatrixOf Rows(int64_t first, int64_t count) const {
    PaddedMatrixOf rows = *this;
    rows.rows_ = count;
    rows.data_ = row(first);
    return rows;
  }

  // Views for the left factor of a product: the matrix, and its transpose.
  Strided<Number> view() const { return {data(), stride_, 1}; }
  Strided<Number> transposed() const { return {data(), 1, stride_}; }

  void Fill(Number value, const ParallelFor& parallel) {
    ForEachRow(rows_, width_ / 8, parallel,
               [&](int64_t i) { std::fill_n(row(i), width_, value); });
  }

  // Copies numbers from rows with the given stride; by default the rows are contiguous.
  template <class Other>
  void CopyFrom(const Other* from, int64_t stride, const ParallelFor& parallel) {
    ForEachRow(rows_, width_ / 2, parallel,
               [&](int64_t i) { ConvertRow(from + i * stride, width_, row(i)); });
  }
  template <class Other>
  void CopyFrom(const Other* from, const ParallelFor& parallel) {
    CopyFrom(from, width_, parallel);
  }

 private:
  // Rows whose distance is a multiple of so many numbers share the sets of a cache.
  static constexpr int64_t kCacheSetMultiple = 64;

  static int64_t Stride(int64_t width) {
    const int64_t padded = RoundUp(width, kWidthMultiple);
    return padded % kCacheSetMultiple == 0 ? padded + kWidthMultiple : padded;
  }

  int64_t rows_, width_, padded_width_, stride_;
  Number* data_;
};

using PaddedMatrix = PaddedMatrixOf<double>;

// to [columns, rows] = the transpose of from [rows, columns], with the given strides.
template <class From, class To>
void TransposeInto(const From* from, int64_t from_stride, int64_t rows, int64_t columns, To* to,
                   int64_t to_stride, const ParallelFor& parallel) {
  constexpr int64_t kBlock = 8;  // writes whole cache lines, and reads each once
  ForEachRow(CeilDiv(rows, kBlock), 2 * kBlock * columns, parallel, [&](int64_t block) {
    const int64_t first = block * kBlock;
    const int64_t count = std::min(kBlock, rows - first);
    const From* part = from + first * from_stride;
    const auto transpose = [&](int64_t size) {
      for (int64_t j = 0; j < columns; ++j) {
        To* target = to + j * to_stride + first;
        for (int64_t k = 0; k < size; ++k) target[k] = part[k * from_stride + j];
      }
    };
    count == kBlock ? transpose(kBlock) : transpose(count);
  });
}

// Copies element [j, i] of a matrix [size, size] to element [i, j], for all j > i.
template <class Number>
void MirrorLower(int64_t size, Number* matrix, int64_t stride, const ParallelFor& parallel) {
  constexpr int64_t kBlock = 8;  // reads each cache line once
  ForEachRow(CeilDiv(size, kBlock), kBlock * size, parallel, [&](int64_t block) {
    const int64_t first = block * kBlock;
    for (int64_t j = first + 1; j < size; ++j) {
      const int64_t last = std::min(first + kBlock, j);
      for (int64_t i = first; i < last; ++i) matrix[i * stride + j] = matrix[j * stride + i];
    }
  });
}

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_LINEAR_ALGEBRA_PADDED_MATRIX_H_
