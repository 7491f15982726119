// The product of a few rows with a few vectors of columns, in registers. For X_simd.cc files
// only.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_LINEAR_ALGEBRA_DENSE_PRODUCT_TILE_H_
#define LARGEOUT_CUSTOM_OPS_CORE_LINEAR_ALGEBRA_DENSE_PRODUCT_TILE_H_

#include <cstdint>

#include "custom_ops/core/base/simd.h"
#include "custom_ops/core/linear_algebra/dense_product_simd.h"

namespace largeout {
namespace LARGEOUT_SIMD {

// A tile keeps kTileRows x kTileVectors sums in registers, and room for one
// vector of each operand.
inline constexpr int kTileRows = 6;
inline constexpr int kTileVectors = kVectorRegisters == 32 ? 4 : 2;

// sum[t][v] += sum over k of rows[t, k] * columns[k * column_stride + v * kLanes ...], added in
// the order of k, with one fused operation per term where the level has it. All tile shapes
// give the same bits.
template <int T, int V, class Number>
inline __attribute__((always_inline)) void ProductTile(const Strided<Number>& rows,
                                                       const Number* columns,
                                                       int64_t column_stride, int64_t depth,
                                                       VectorOf<Number> (&sum)[T][V]) {
  for (int64_t k = 0; k < depth; ++k) {
    VectorOf<Number> column[V];
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) {
      column[v] = Load(columns + k * column_stride + v * kLanesOf<Number>);
    }
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) {
      const VectorOf<Number> row = Broadcast(rows.data[t * rows.row_stride + k * rows.step]);
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) sum[t][v] += row * column[v];
    }
  }
}

}  // namespace LARGEOUT_SIMD
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_LINEAR_ALGEBRA_DENSE_PRODUCT_TILE_H_
