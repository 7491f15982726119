// The product of a tile of rows with a tile of columns, in the registers of a block.
//
// Thread (g, h) of a block keeps kTileRows x kTileColumns sums: those of rows Shape::Row(g, i)
// and columns Shape::Column(h, j) of the tile. Chunks of the depth go through shared memory,
// which holds two chunks: the block uses one while it loads the other.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_CLASS_TILE_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_CLASS_TILE_H_

#include <cmath>
#include <cstdint>

#include "custom_ops/cuda/block_tools.h"

namespace largeout {
namespace cuda {

// The depth of a chunk, and the padding that avoids bank conflicts.
inline constexpr int kChunk = 8;
inline constexpr int kPadding = 4;

// TR x TC sums per thread and RG x CG threads per block. The block reads `Together` consecutive
// numbers of a row at once: 1, or 4 if AlignedForFour holds for all rows.
template <int TR, int TC, int RG, int CG, int Together = 1>
struct TileShape {
  using ByFours = TileShape<TR, TC, RG, CG, 4>;

  static constexpr int kTogether = Together;
  static constexpr int kTileRows = TR, kTileColumns = TC;
  static constexpr int kRowGroups = RG, kColumnGroups = CG;
  static constexpr int kThreads = RG * CG;
  static constexpr int kRows = TR * RG, kColumns = TC * CG;  // of a block
  // Small tiles are bound by memory latency. More blocks per multiprocessor have more loads in
  // flight.
  static constexpr int kBlocksTogether = (TR * TC <= 16 ? 768 : 512) / kThreads;

  LARGEOUT_DEVICE static int RowGroup(int thread) { return thread / CG; }
  LARGEOUT_DEVICE static int ColumnGroup(int thread) { return thread % CG; }
  LARGEOUT_DEVICE static int Row(int group, int i) { return Spread<TR, RG>(group, i); }
  LARGEOUT_DEVICE static int Column(int group, int j) { return Spread<TC, CG>(group, j); }

 private:
  // Groups are interleaved in fours, so that neighbouring groups read other banks.
  template <int N, int Groups>
  LARGEOUT_DEVICE static int Spread(int group, int i) {
    constexpr int kRun = N < 4 ? N : 4;
    return i / kRun * (Groups * kRun) + group * kRun + i % kRun;
  }
};

// The sums of one thread.
template <class Shape>
struct TileSums {
  float at[Shape::kTileRows][Shape::kTileColumns];

  // The highest number of row i; -inf if all are NaN.
  LARGEOUT_DEVICE float Highest(int i) const {
    float top = MinusInfinity();
    LARGEOUT_UNROLL
    for (int j = 0; j < Shape::kTileColumns; ++j) top = fmaxf(top, at[i][j]);
    return top;
  }
};

// A matrix with rows [size, dim].
struct Operand {
  const float* data;
  int64_t size;
};

// Reads 1 or 4 consecutive numbers at `from`; 0 unless `in`.
template <int Together>
LARGEOUT_DEVICE inline void LoadNeighbours(const float* from, bool in, float (&at)[Together]) {
  if constexpr (Together == 4) {
    const FourFloats four = in ? LoadFour(from) : FourFloats{};
    LARGEOUT_UNROLL
    for (int j = 0; j < 4; ++j) at[j] = four.at[j];
  } else {
    static_assert(Together == 1, "1 or 4");
    at[0] = in ? *from : 0.0f;
  }
}

// Writes 1 or 4 consecutive numbers.
template <int Together>
LARGEOUT_DEVICE inline void StoreNeighbours(const float (&at)[Together], float* to) {
  if constexpr (Together == 4) {
#ifdef __CUDA_ARCH__
    *reinterpret_cast<float4*>(to) = make_float4(at[0], at[1], at[2], at[3]);
#else
    RequireAligned(to);
    for (int j = 0; j < 4; ++j) to[j] = at[j];
#endif
  } else {
    *to = at[0];
  }
}

// Copies kRows x kChunk numbers to shared memory, transposed: [kChunk, kRows + kPadding]. A
// thread copies `Together` consecutive numbers of every kStep-th row.
template <int Rows, int Threads, int Together>
struct Cargo {
  static constexpr int kStride = Rows + kPadding;
  static constexpr int kFloats = kChunk * kStride;
  static constexpr int kLanes = kChunk / Together;  // threads that copy one row
  static constexpr int kStep = Threads / kLanes;
  static constexpr int kEach = (Rows + kStep - 1) / kStep;

  float at[kEach][Together];
  const float* from;  // start of the thread's next chunk
  int rows;           // number of rows from the thread's first row on

  LARGEOUT_DEVICE void Start(const Operand& matrix, int64_t first_row, int dim, int thread) {
    const int row = thread / kLanes;
    const int64_t left = matrix.size - first_row;
    from = matrix.data + (first_row + row) * dim + thread % kLanes * Together;
    rows = static_cast<int>(left < Rows ? left : Rows) - row;
  }

  // Reads the next chunk, which starts at column k. Numbers outside the matrix are 0.
  LARGEOUT_DEVICE void Load(int k, int dim, int thread) {
    const int end = k + thread % kLanes * Together < dim ? rows : 0;
    LARGEOUT_UNROLL
    for (int e = 0; e < kEach; ++e) {
      LoadNeighbours(from + int64_t{e * kStep} * dim, e * kStep < end, at[e]);
    }
    from += kChunk;
  }

  LARGEOUT_DEVICE void Store(int thread, float* shared) const {
    float* const to = shared + thread % kLanes * Together * kStride + thread / kLanes;
    LARGEOUT_UNROLL
    for (int e = 0; e < kEach; ++e) {
      if (Rows % kStep != 0 && thread / kLanes + e * kStep >= Rows) continue;
      LARGEOUT_UNROLL
      for (int j = 0; j < Together; ++j) to[j * kStride + e * kStep] = at[e][j];
    }
  }
};

// Keeps the compiler from moving earlier loads behind later arithmetic. It would do so to save
// registers, and the latency of the loads would no longer be hidden.
LARGEOUT_DEVICE inline void StartLoads() {
#ifdef __CUDA_ARCH__
  __syncwarp();
#endif
}

// sums[i][j] += rows[k, Row(i)] * columns[k, Column(j)], for the k of a chunk in order.
template <class Shape>
LARGEOUT_DEVICE void AddChunk(const float* rows, int row_stride, const float* columns,
                              int column_stride, int thread, TileSums<Shape>* sums) {
  const int row_group = Shape::RowGroup(thread), column_group = Shape::ColumnGroup(thread);
  // With more steps unrolled, large tiles spill registers to local memory on some GPUs.
  [[maybe_unused]] constexpr int kSteps =
      Shape::kTileRows * Shape::kTileColumns < 32 ? kChunk : 2;
  LARGEOUT_UNROLL_BY(kSteps)
  for (int k = 0; k < kChunk; ++k) {
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

// Tiles of the sums over k of rows[r, k] * columns[c, k].
template <class Shape, class Block>
class TileProduct {
 public:
  using Sums = typename Block::template PerThread<TileSums<Shape>>;

  // `shared` has room for kProductFloats<Shape>. It is free for other uses between two tiles.
  LARGEOUT_DEVICE TileProduct(const Block& block, float* shared)
      : block_(block), shared_(shared), cargo_(block) {}

  // Adds the products of the rows from `first_row` on and the columns from `first_column` on.
  LARGEOUT_DEVICE void Add(const Operand& rows, int64_t first_row, const Operand& columns,
                           int64_t first_column, int64_t dim, Sums* sums) {
    const int depth = static_cast<int>(dim);
    block_.ForEachThread([&](int thread) {
      Carried& cargo = cargo_[thread];
      cargo.rows.Start(rows, first_row, depth, thread);
      cargo.columns.Start(columns, first_column, depth, thread);
      cargo.Load(0, depth, thread);
      cargo.Store(thread, shared_);
    });
    float *now = shared_, *next = shared_ + kChunkFloats;
    for (int k = 0; k < depth; k += kChunk) {
      block_.ForEachThread([&](int thread) {
        cargo_[thread].Load(k + kChunk, depth, thread);
        StartLoads();
        AddChunk<Shape>(now, RowCargo::kStride, now + RowCargo::kFloats, ColumnCargo::kStride,
                        thread, &(*sums)[thread]);
        cargo_[thread].Store(thread, next);
      });
      float* const used = now;
      now = next;
      next = used;
    }
  }

 private:
  using RowCargo = Cargo<Shape::kRows, Shape::kThreads, Shape::kTogether>;
  using ColumnCargo = Cargo<Shape::kColumns, Shape::kThreads, Shape::kTogether>;
  static constexpr int kChunkFloats = RowCargo::kFloats + ColumnCargo::kFloats;

  struct Carried {
    RowCargo rows;
    ColumnCargo columns;

    LARGEOUT_DEVICE void Load(int k, int dim, int thread) {
      rows.Load(k, dim, thread);
      columns.Load(k, dim, thread);
    }
    LARGEOUT_DEVICE void Store(int thread, float* shared) const {
      rows.Store(thread, shared);
      columns.Store(thread, shared + RowCargo::kFloats);
    }
  };

  const Block& block_;
  float* const shared_;
  typename Block::template PerThread<Carried> cargo_;
};

// The size of a TileProduct's shared memory, in floats.
template <class Shape>
inline constexpr int kProductFloats =
    2 * kChunk * (Shape::kRows + kPadding + Shape::kColumns + kPadding);

}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_CLASS_TILE_H_
