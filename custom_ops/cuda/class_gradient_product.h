// The second product of the gradient: weights that a block has in shared memory times rows of
// a matrix, added to rows in memory that belong to the block alone.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_CLASS_GRADIENT_PRODUCT_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_CLASS_GRADIENT_PRODUCT_H_

#include <cstdint>

#include "custom_ops/cuda/class_tile.h"

namespace largeout {
namespace cuda {

// kChunk rows of `Columns` numbers on their way to shared memory, [kChunk, Columns +
// kPadding]. Each of `Threads` threads carries kEach of them.
template <int Columns, int Threads>
struct RowCargo {
  static constexpr int kStride = Columns + kPadding;
  static constexpr int kFloats = kChunk * kStride;
  static constexpr int kEach = Columns * kChunk / Threads;
  static_assert(kEach * Threads == Columns * kChunk, "every thread carries as much");

  float at[kEach];

  // Numbers outside the matrix are 0.
  LARGEOUT_DEVICE void Load(const Operand& matrix, int64_t first_row, int64_t first_k,
                            int64_t dim, int thread) {
    LARGEOUT_UNROLL
    for (int e = 0; e < kEach; ++e) {
      const int i = thread + e * Threads;
      const int64_t row = first_row + i / Columns, k = first_k + i % Columns;
      at[e] = row < matrix.size && k < dim ? matrix.data[row * dim + k] : 0.0f;
    }
  }

  LARGEOUT_DEVICE void Store(int thread, float* shared) const {
    LARGEOUT_UNROLL
    for (int e = 0; e < kEach; ++e) {
      const int i = thread + e * Threads;
      shared[i / Columns * kStride + i % Columns] = at[e];
    }
  }
};

// Rows of Shape x columns of the matrix.
template <class Shape, class Block>
class RowAccumulator {
 public:
  using Cargo = RowCargo<Shape::kColumns, Shape::kThreads>;
  static constexpr int kWeightStride = Shape::kRows + kPadding;

  // `shared` has room for Cargo::kFloats, `weights` are [depth, kWeightStride].
  LARGEOUT_DEVICE RowAccumulator(const Block& block, const float* weights, float* shared)
      : block_(block), weights_(weights), shared_(shared), cargo_(block), sums_(block) {}

  // out[r] += sum over s < depth of weights[s, r] * matrix[first + s], for `rows` rows of
  // [rows, dim]; the first time, out = the sum. REQUIRES: kChunk divides depth.
  LARGEOUT_DEVICE void Add(const Operand& matrix, int64_t first, int depth, int64_t dim,
                           int64_t rows, bool first_time, float* out) {
    for (int64_t k = 0; k < dim; k += Shape::kColumns) {
      Sum(matrix, first, depth, dim, k);
      block_.ForEachThread(
          [&](int thread) { AddTo(out, sums_[thread], thread, rows, dim, k, first_time); });
    }
  }

 private:
  LARGEOUT_DEVICE void Sum(const Operand& matrix, int64_t first, int depth, int64_t dim,
                           int64_t first_k) {
    block_.ForEachThread([&](int thread) {
      sums_[thread] = TileSums<Shape>{};
      cargo_[thread].Load(matrix, first, first_k, dim, thread);
    });
    for (int s = 0; s < depth; s += kChunk) {
      block_.ForEachThread([&](int thread) { cargo_[thread].Store(thread, shared_); });
      block_.ForEachThread([&](int thread) {
        if (s + kChunk < depth) {
          cargo_[thread].Load(matrix, first + s + kChunk, first_k, dim, thread);
        }
        AddChunk<Shape>(weights_ + s * kWeightStride, kWeightStride, shared_, Cargo::kStride,
                        kChunk, thread, &sums_[thread]);
      });
    }
  }

  LARGEOUT_DEVICE static void AddTo(float* out, const TileSums<Shape>& sums, int thread,
                                    int64_t rows, int64_t dim, int64_t first_k,
                                    bool first_time) {
    LARGEOUT_UNROLL
    for (int i = 0; i < Shape::kTileRows; ++i) {
      const int row = Shape::Row(Shape::RowGroup(thread), i);
      LARGEOUT_UNROLL
      for (int j = 0; j < Shape::kTileColumns; ++j) {
        const int64_t k = first_k + Shape::Column(Shape::ColumnGroup(thread), j);
        if (row >= rows || k >= dim) continue;
        float* const to = out + row * dim + k;
        *to = first_time ? sums.at[i][j] : *to + sums.at[i][j];
      }
    }
  }

  const Block& block_;
  const float* const weights_;
  float* const shared_;
  typename Block::template PerThread<Cargo> cargo_;
  typename Block::template PerThread<TileSums<Shape>> sums_;
};

}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_CLASS_GRADIENT_PRODUCT_H_
