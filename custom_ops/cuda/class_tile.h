// The product of a tile of rows with a tile of columns, in the registers of a block.
//
// Thread (g, h) of a block keeps kTileRows x kTileColumns sums: those of the rows
// Shape::Row(g, i) and the columns Shape::Column(h, j) of the tile. Chunks of the depth go
// through shared memory, and the next one comes from memory meanwhile.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_CLASS_TILE_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_CLASS_TILE_H_

#include <cstdint>

#include "custom_ops/cuda/block_tools.h"

namespace largeout {
namespace cuda {

// Depth of what is in shared memory at a time, and room that spreads the banks.
inline constexpr int kChunk = 16;
inline constexpr int kPadding = 4;

// `TR` x `TC` sums a thread, `RG` x `CG` threads a block.
template <int TR, int TC, int RG, int CG>
struct TileShape {
  static constexpr int kTileRows = TR, kTileColumns = TC;
  static constexpr int kRowGroups = RG, kColumnGroups = CG;
  static constexpr int kThreads = RG * CG;
  static constexpr int kRows = TR * RG, kColumns = TC * CG;  // of a block

  LARGEOUT_DEVICE static int RowGroup(int thread) { return thread / CG; }
  LARGEOUT_DEVICE static int ColumnGroup(int thread) { return thread % CG; }
  LARGEOUT_DEVICE static int Row(int group, int i) { return Spread<TR, RG>(group, i); }
  LARGEOUT_DEVICE static int Column(int group, int j) { return Spread<TC, CG>(group, j); }

 private:
  // Neighbouring groups have neighbouring fours: they read other banks.
  template <int N, int Groups>
  LARGEOUT_DEVICE static int Spread(int group, int i) {
    constexpr int kRun = N < 4 ? N : 4;
    return i / kRun * (Groups * kRun) + group * kRun + i % kRun;
  }
};

// The sums of a thread.
template <class Shape>
struct TileSums {
  float at[Shape::kTileRows][Shape::kTileColumns];
};

// Rows [size, dim] of a matrix.
struct Operand {
  const float* data;
  int64_t size;
};

// kRows x kChunk numbers on their way to shared memory, where they stand transposed,
// [kChunk, kRows + kPadding]. Each of `Threads` threads carries kEach of them.
template <int Rows, int Threads>
struct Cargo {
  static constexpr int kStride = Rows + kPadding;
  static constexpr int kFloats = kChunk * kStride;
  static constexpr int kEach = Rows * kChunk / Threads;
  static_assert(kEach * Threads == Rows * kChunk, "every thread carries as much");

  float at[kEach];

  // Numbers outside the matrix are 0.
  LARGEOUT_DEVICE void Load(const Operand& matrix, int64_t first_row, int64_t first_k,
                            int64_t dim, int thread) {
    const int64_t k = first_k + thread % kChunk;
    LARGEOUT_UNROLL
    for (int e = 0; e < kEach; ++e) {
      const int64_t row = first_row + thread / kChunk + e * (Threads / kChunk);
      at[e] = row < matrix.size && k < dim ? matrix.data[row * dim + k] : 0.0f;
    }
  }

  LARGEOUT_DEVICE void Store(int thread, float* shared) const {
    float* const to = shared + thread % kChunk * kStride + thread / kChunk;
    LARGEOUT_UNROLL
    for (int e = 0; e < kEach; ++e) to[e * (Threads / kChunk)] = at[e];
  }
};

// sums[i][j] += rows[k, Row(i)] * columns[k, Column(j)] for k in order.
template <class Shape>
LARGEOUT_DEVICE void AddChunk(const float* rows, int row_stride, const float* columns,
                              int column_stride, int depth, int thread, TileSums<Shape>* sums) {
  const int row_group = Shape::RowGroup(thread), column_group = Shape::ColumnGroup(thread);
  LARGEOUT_UNROLL
  for (int k = 0; k < depth; ++k) {
    float a[Shape::kTileRows], b[Shape::kTileColumns];
    LARGEOUT_UNROLL
    for (int i = 0; i < Shape::kTileRows; ++i) {
      a[i] = rows[k * row_stride + Shape::Row(row_group, i)];
    }
    LARGEOUT_UNROLL
    for (int j = 0; j < Shape::kTileColumns; ++j) {
      b[j] = columns[k * column_stride + Shape::Column(column_group, j)];
    }
    LARGEOUT_UNROLL
    for (int i = 0; i < Shape::kTileRows; ++i) {
      LARGEOUT_UNROLL
      for (int j = 0; j < Shape::kTileColumns; ++j) {
        sums->at[i][j] = MultiplyAdd(a[i], b[j], sums->at[i][j]);
      }
    }
  }
}

// Shared memory of a TileProduct.
template <class Shape>
inline constexpr int kProductFloats = Cargo<Shape::kRows, Shape::kThreads>::kFloats +
                                      Cargo<Shape::kColumns, Shape::kThreads>::kFloats;

// Tiles of sums over k of rows[r, k] * columns[c, k].
template <class Shape, class Block>
class TileProduct {
 public:
  using Sums = typename Block::template PerThread<TileSums<Shape>>;
  using RowCargo = Cargo<Shape::kRows, Shape::kThreads>;
  using ColumnCargo = Cargo<Shape::kColumns, Shape::kThreads>;

  // `shared` has room for kProductFloats<Shape>; between two tiles it is free.
  LARGEOUT_DEVICE TileProduct(const Block& block, float* shared)
      : block_(block), rows_(shared), columns_(shared + RowCargo::kFloats), cargo_(block) {}

  // Adds to the sums the products of rows from `first_row` and columns from `first_column`.
  LARGEOUT_DEVICE void Add(const Operand& rows, int64_t first_row, const Operand& columns,
                           int64_t first_column, int64_t dim, Sums* sums) {
    block_.ForEachThread([&](int thread) {
      cargo_[thread].rows.Load(rows, first_row, 0, dim, thread);
      cargo_[thread].columns.Load(columns, first_column, 0, dim, thread);
    });
    for (int64_t k = 0; k < dim; k += kChunk) {
      block_.ForEachThread([&](int thread) {
        cargo_[thread].rows.Store(thread, rows_);
        cargo_[thread].columns.Store(thread, columns_);
      });
      block_.ForEachThread([&](int thread) {
        if (k + kChunk < dim) {
          cargo_[thread].rows.Load(rows, first_row, k + kChunk, dim, thread);
          cargo_[thread].columns.Load(columns, first_column, k + kChunk, dim, thread);
        }
        AddChunk<Shape>(rows_, RowCargo::kStride, columns_, ColumnCargo::kStride, kChunk,
                        thread, &(*sums)[thread]);
      });
    }
  }

 private:
  struct Carried {
    RowCargo rows;
    ColumnCargo columns;
  };

  const Block& block_;
  float* const rows_;
  float* const columns_;
  typename Block::template PerThread<Carried> cargo_;
};

}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_CLASS_TILE_H_
