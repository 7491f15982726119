#include "custom_ops/core/dense_product_simd.h"

#include "custom_ops/core/dense_product_tile.h"
#include "custom_ops/core/simd.h"

namespace largeout {
namespace LARGEOUT_SIMD {
namespace {

// V vectors of columns: tiles of T rows, then of fewer.
template <int T, int V, class Number>
void AddColumns(const Strided<Number>& a, int64_t rows, int64_t depth, const Number* b,
                int64_t b_stride, Number* out, int64_t out_stride) {
  constexpr int kStep = kLanesOf<Number>;
  int64_t r = 0;
  for (; r + T <= rows; r += T) {
    VectorOf<Number> sum[T][V];
    Number* to = out + r * out_stride;
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) {
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) sum[t][v] = Load(to + t * out_stride + v * kStep);
    }
    ProductTile<T, V>({a.data + r * a.row_stride, a.row_stride, a.step}, b, b_stride, depth,
                      sum);
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) {
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) Store(sum[t][v], to + t * out_stride + v * kStep);
    }
  }
  if constexpr (T > 1) {
    AddColumns<T / 2, V>({a.data + r * a.row_stride, a.row_stride, a.step}, rows - r, depth, b,
                         b_stride, out + r * out_stride, out_stride);
  }
}

template <class Number>
void AddAllColumns(const ProductSize& size, const Strided<Number>& a, const Number* b,
                   int64_t b_stride, Number* out, int64_t out_stride) {
  constexpr int kNarrow = kLanesOf<Number>, kWide = kTileVectors * kNarrow;
  int64_t j = 0;
  for (; j + kWide <= size.width; j += kWide) {
    AddColumns<kTileRows, kTileVectors>(a, size.rows, size.depth, b + j, b_stride, out + j,
                                        out_stride);
  }
  for (; j < size.width; j += kNarrow) {
    AddColumns<kTileRows, 1>(a, size.rows, size.depth, b + j, b_stride, out + j, out_stride);
  }
}

}  // namespace

void AddProduct(const ProductSize& size, const Strided<float>& a, const float* b,
                int64_t b_stride, float* out, int64_t out_stride) {
  AddAllColumns(size, a, b, b_stride, out, out_stride);
}

void AddProduct(const ProductSize& size, const Strided<double>& a, const double* b,
                int64_t b_stride, double* out, int64_t out_stride) {
  AddAllColumns(size, a, b, b_stride, out, out_stride);
}

}  // namespace LARGEOUT_SIMD
}  // namespace largeout
