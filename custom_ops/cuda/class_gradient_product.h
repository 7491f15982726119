// The second product of the gradient: weights in shared memory times rows of a matrix, added to
// output rows that no other block writes.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_CLASS_GRADIENT_PRODUCT_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_CLASS_GRADIENT_PRODUCT_H_

#include <cstdint>

#include "custom_ops/cuda/class_tile.h"

namespace largeout {
namespace cuda {

// Copies kChunk rows of `Columns` numbers to shared memory [kChunk, Columns + kPadding]. A
// thread copies `Together` consecutive numbers of every kStep-th row.
template <int Columns, int Threads, int Together>
struct RowCargo {
  static constexpr int kStride = Columns + kPadding;
  static constexpr int kFloats = kChunk * kStride;
  static constexpr int kLanes = Columns / Together;  // threads that copy one row
  static constexpr int kStep = Threads / kLanes;
  static constexpr int kEach = (kChunk + kStep - 1) / kStep;

  float at[kEach][Together];

  // Reads the rows from `first_row` on. Numbers outside the matrix are 0.
  LARGEOUT_DEVICE void Load(const Operand& matrix, int64_t first_row, int64_t first_k,
                            int64_t dim, int thread) {
    const int64_t row = first_row + thread / kLanes, left = matrix.size - row;
    const int64_t k = first_k + thread % kLanes * Together;
    const float* from = matrix.data + row * dim + k;
    LARGEOUT_UNROLL
    for (int e = 0; e < kEach; ++e, from += kStep * dim) {
      const bool in = IsCarried(thread, e) && e * kStep < left && k < dim;
      LoadNeighbours(from, in, at[e]);
    }
  }

  LARGEOUT_DEVICE void Store(int thread, float* shared) const {
    float* const to = shared + thread / kLanes * kStride + thread % kLanes * Together;
    LARGEOUT_UNROLL
    for (int e = 0; e < kEach; ++e) {
      if (!IsCarried(thread, e)) continue;
      LARGEOUT_UNROLL
      for (int j = 0; j < Together; ++j) to[e * kStep * kStride + j] = at[e][j];
    }
  }

 private:
  LARGEOUT_DEVICE static bool IsCarried(int thread, int e) {
    return kChunk % kStep == 0 || thread / kLanes + e * kStep < kChunk;
  }
};

// Accumulates tiles of Shape: output rows x columns of the matrix.
template <class Shape, class Block>
class RowAccumulator {
 public:
  using Cargo = RowCargo<Shape::kColumns, Shape::kThreads, Shape::kTogether>;
  static constexpr int kWeightStride = Shape::kRows + kPadding;

  // `shared` has room for 2 Cargo::kFloats numbers. `weights` is [depth, kWeightStride].
  LARGEOUT_DEVICE RowAccumulator(const Block& block, const float* weights, float* shared)
      : block_(block), weights_(weights), shared_(shared), sums_(block) {}

  // out[r] += sum over s < depth of weights[s, r] * matrix[first + s], for `rows` rows of out
  // [rows, dim]. If first_time, out = the sum. REQUIRES: kChunk divides depth.
  LARGEOUT_DEVICE void Add(const Operand& matrix, int64_t first, int depth, int64_t dim,
                           int64_t rows, bool first_time, float* out) {
    for (int64_t k = 0; k < dim; k += Shape::kColumns) {
      Sum(matrix, first, depth, dim, k);
      block_.ForEachThread(
          [&](int thread) { AddTo(out, sums_[thread], thread, rows, dim, k, first_time); });
    }
  }

 private:
  // The number of consecutive sums of a thread that are written together.
  static constexpr int kRun = Shape::kTileColumns % 4 == 0 ? Shape::kTogether : 1;

  LARGEOUT_DEVICE void Sum(const Operand& matrix, int64_t first, int depth, int64_t dim,
                           int64_t first_k) {
    const int64_t end = first + depth;
    const Operand rows{matrix.data, matrix.size < end ? matrix.size : end};
    block_.ForEachThread([&](int thread) {
      sums_[thread] = TileSums<Shape>{};
      Cargo cargo;
      cargo.Load(rows, first, first_k, dim, thread);
      cargo.Store(thread, shared_);
    });
    float *now = shared_, *next = shared_ + Cargo::kFloats;
    for (int s = 0; s < depth; s += kChunk) {
      block_.ForEachThread([&](int thread) {
        Cargo cargo;
        cargo.Load(rows, first + s + kChunk, first_k, dim, thread);
        StartLoads();
        AddChunk<Shape>(weights_ + s * kWeightStride, kWeightStride, now, Cargo::kStride,
                        thread, &sums_[thread]);
        cargo.Store(thread, next);
      });
      float* const used = now;
      now = next;
      next = used;
    }
  }

  LARGEOUT_DEVICE static void AddTo(float* out, const TileSums<Shape>& sums, int thread,
                                    int64_t rows, int64_t dim, int64_t first_k,
                                    bool first_time) {
    LARGEOUT_UNROLL
    for (int i = 0; i < Shape::kTileRows; ++i) {
      const int row = Shape::Row(Shape::RowGroup(thread), i);
      LARGEOUT_UNROLL
      for (int j = 0; j < Shape::kTileColumns; j += kRun) {
        const int64_t k = first_k + Shape::Column(Shape::ColumnGroup(thread), j);
        if (row >= rows || k >= dim) continue;
        float* const to = out + row * dim + k;
        float now[kRun];
        LoadNeighbours(to, !first_time, now);
        LARGEOUT_UNROLL
        for (int u = 0; u < kRun; ++u) {
          now[u] = first_time ? sums.at[i][j + u] : now[u] + sums.at[i][j + u];
        }
        StoreNeighbours(now, to);
      }
    }
  }

  const Block& block_;
  const float* const weights_;
  float* const shared_;
  typename Block::template PerThread<TileSums<Shape>> sums_;
};

}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_CLASS_GRADIENT_PRODUCT_H_
