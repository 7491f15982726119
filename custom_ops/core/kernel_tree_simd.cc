#include "custom_ops/core/kernel_tree_simd.h"

#include "custom_ops/core/simd.h"

namespace largeout {
namespace LARGEOUT_SIMD {
namespace {

// So many vectors and rows are multiplied at once, sums in registers.
inline constexpr int kMostVectors = 4;
inline constexpr int kMostRows = kVectorRegisters == 32 ? 4 : 2;
// So many numbers of them: some rows and vectors fit into the first cache together.
inline constexpr int64_t kBlock = 768;

// Adds the products of numbers [begin, end) of V vectors and R rows.
template <int V, int R>
inline __attribute__((always_inline)) void AddTile(const AdjacentRows& rows, int64_t row,
                                                   const float* const* vectors, int64_t begin,
                                                   int64_t end, float* products) {
  Floats sum[V][R] = {};
  const float* first_row = rows.data + row * rows.dim;
  int64_t k = begin;
  for (; k + kLanes <= end; k += kLanes) {
    Floats of_row[R];
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) of_row[r] = Load(first_row + r * rows.dim + k);
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) {
      const Floats of_vector = Load(vectors[v] + k);
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) sum[v][r] += of_vector * of_row[r];
    }
  }
#pragma GCC unroll 4
  for (int v = 0; v < V; ++v) {
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      float total = SumLanes(sum[v][r]);
      for (int64_t i = k; i < end; ++i) total += vectors[v][i] * first_row[r * rows.dim + i];
      products[v * rows.num_rows + row + r] += total;
    }
  }
}

// All rows, R at a time and then as many as are left.
template <int V, int R>
void AddRows(const AdjacentRows& rows, int64_t row, const float* const* vectors, int64_t begin,
             int64_t end, float* products) {
  for (; row + R <= rows.num_rows; row += R) {
    AddTile<V, R>(rows, row, vectors, begin, end, products);
  }
  if constexpr (R > 1) AddRows<V, R - 1>(rows, row, vectors, begin, end, products);
}

// All vectors, V at a time and then as many as are left.
template <int V>
void AddVectors(const AdjacentRows& rows, const float* const* vectors, int64_t num_vectors,
                int64_t begin, int64_t end, float* products) {
  int64_t v = 0;
  for (; v + V <= num_vectors; v += V) {
    AddRows<V, kMostRows>(rows, 0, vectors + v, begin, end, products + v * rows.num_rows);
  }
  if constexpr (V > 1) {
    AddVectors<V - 1>(rows, vectors + v, num_vectors - v, begin, end,
                      products + v * rows.num_rows);
  }
}

}  // namespace

void MultiplyRows(const AdjacentRows& rows, const float* const* vectors, int64_t num_vectors,
                  float* products) {
  ZeroFloats(products, num_vectors * rows.num_rows);
  for (int64_t begin = 0; begin < rows.dim; begin += kBlock) {
    const int64_t end = begin + kBlock < rows.dim ? begin + kBlock : rows.dim;
    AddVectors<kMostVectors>(rows, vectors, num_vectors, begin, end, products);
  }
}

void MultiplyPairs(const float* query, int64_t dim, float* phi) {
  for (int64_t i = 0; i < dim; ++i) {
    const float twice = 2 * query[i];
    for (int64_t j = 0; j < i; ++j) phi[j] = twice * query[j];
    phi[i] = query[i] * query[i];
    phi += i + 1;
  }
}

void SumRows(const AdjacentRows& rows, float* sum) {
  int64_t k = 0;
  for (; k + kLanes <= rows.dim; k += kLanes) {
    Floats total = Load(rows.data + k);
    for (int64_t r = 1; r < rows.num_rows; ++r) total += Load(rows.data + r * rows.dim + k);
    Store(total, sum + k);
  }
  for (; k < rows.dim; ++k) {
    sum[k] = rows.data[k];
    for (int64_t r = 1; r < rows.num_rows; ++r) sum[k] += rows.data[r * rows.dim + k];
  }
}

void SumSquares(const float* row, int64_t dim, float* sum) {
  Floats lanes = {};
  int64_t k = 0;
  for (; k + kLanes <= dim; k += kLanes) lanes += Load(row + k) * Load(row + k);
  *sum = SumLanes(lanes);
  for (; k < dim; ++k) *sum += row[k] * row[k];
}

}  // namespace LARGEOUT_SIMD
}  // namespace largeout
