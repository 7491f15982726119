// The block body of Multiply: one square of the result at a time.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_DENSE_PRODUCT_BODY_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_DENSE_PRODUCT_BODY_H_

#include <cstdint>

#include "custom_ops/core/base/rounding.h"
#include "custom_ops/cuda/block_tools.h"
#include "custom_ops/cuda/dense_product.h"

namespace largeout {
namespace cuda {

struct DenseProductBody {
  DenseProduct product;

  static constexpr int kSide = 32;  // of the squares of the result and in shared memory
  static constexpr int kStride = kSide + 1;  // puts a column into different banks
  static constexpr int kLines = 16;          // threads in one row of the block
  static constexpr int kThreads = kLines * kLines;
  static constexpr int kEach = kSide / kLines;  // sums per thread in each direction
  static constexpr int kSharedBytes = 2 * kSide * kStride * sizeof(double);

  struct Sums {
    double at[kEach][kEach];
  };

  LARGEOUT_HOST_DEVICE int64_t NumSquares() const {
    return CeilDiv(product.size.rows, kSide) * CeilDiv(product.size.width, kSide);
  }

  template <class Block>
  LARGEOUT_DEVICE void operator()(const Block& block, char* shared) const {
    auto* const of_a = reinterpret_cast<double*>(shared);  // [row, k]
    double* const of_b = of_a + kSide * kStride;           // [k, column]
    const ProductSize& size = product.size;
    const int64_t across = CeilDiv(size.width, kSide);
    typename Block::template PerThread<Sums> sums(block);
    for (int64_t i = block.index(); i < NumSquares(); i += block.num_blocks()) {
      const int64_t row = i / across * kSide, column = i % across * kSide;
      if (product.lower && column > row) continue;
      block.ForEachThread([&](int thread) { sums[thread] = Sums{}; });
      for (int64_t k = 0; k < size.depth; k += kSide) {
        block.ForEachThread([&](int thread) {
          Load(product.a, product.scales, row, k, size.rows, size.depth, thread, of_a);
          Load(product.b, nullptr, k, column, size.depth, size.width, thread, of_b);
        });
        block.ForEachThread([&](int thread) { Add(of_a, of_b, thread, &sums[thread]); });
      }
      block.ForEachThread([&](int thread) { Store(row, column, thread, sums[thread]); });
    }
  }

 private:
  // shared [kSide, kStride] = the square of the matrix [rows, width] that starts at [row,
  // column], with each column times its scale; 0 outside the matrix. Neighbouring threads read
  // consecutive numbers.
  LARGEOUT_DEVICE static void Load(const Strided<double>& matrix, const double* scales,
                                   int64_t row, int64_t column, int64_t rows, int64_t width,
                                   int thread, double* shared) {
    const bool along_rows = matrix.step == 1;
    const int neighbour = thread % kSide;
    for (int line = thread / kSide; line < kSide; line += kThreads / kSide) {
      const int r = along_rows ? line : neighbour, c = along_rows ? neighbour : line;
      double number = 0;
      if (row + r < rows && column + c < width) {
        number = matrix.data[(row + r) * matrix.row_stride + (column + c) * matrix.step];
        if (scales != nullptr) number *= scales[column + c];
      }
      shared[r * kStride + c] = number;
    }
  }

  LARGEOUT_DEVICE static void Add(const double* of_a, const double* of_b, int thread,
                                  Sums* sums) {
    const int row = thread / kLines, column = thread % kLines;
    LARGEOUT_UNROLL_BY(8)
    for (int k = 0; k < kSide; ++k) {
      double a[kEach], b[kEach];
      for (int e = 0; e < kEach; ++e) {
        a[e] = of_a[(row + e * kLines) * kStride + k];
        b[e] = of_b[k * kStride + column + e * kLines];
      }
      for (int i = 0; i < kEach; ++i) {
        for (int j = 0; j < kEach; ++j) sums->at[i][j] += a[i] * b[j];
      }
    }
  }

  LARGEOUT_DEVICE void Store(int64_t first_row, int64_t first_column, int thread,
                             const Sums& sums) const {
    for (int i = 0; i < kEach; ++i) {
      for (int j = 0; j < kEach; ++j) {
        const int64_t row = first_row + thread / kLines + i * kLines;
        const int64_t column = first_column + thread % kLines + j * kLines;
        if (row >= product.size.rows || column >= product.size.width) continue;
        const int64_t at = row * product.out_stride + column;
        const double base = product.base == nullptr ? 0 : product.base[at];
        product.out[at] = base + product.factor * sums.at[i][j];
      }
    }
  }
};

}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_DENSE_PRODUCT_BODY_H_
