#include "custom_ops/core/linear_algebra/dense_product_simd.h"

#include "custom_ops/core/base/simd.h"
#include "custom_ops/core/linear_algebra/dense_product_tile.h"

namespace largeout {
namespace LARGEOUT_SIMD {
namespace {

// Adds tiles to an output of the same number type, in whole vectors. The sums start with the
// output's values.
template <class Number>
struct SameType {
  Number* data;
  int64_t stride;

  SameType At(int64_t row, int64_t column) const {
    return {data + row * stride + column, stride};
  }

  template <int T, int V>
  inline __attribute__((always_inline)) void Begin(VectorOf<Number> (&sum)[T][V]) const {
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) {
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) {
        sum[t][v] = Load(data + t * stride + v * kLanesOf<Number>);
      }
    }
  }

  template <int T, int V>
  inline __attribute__((always_inline)) void End(const VectorOf<Number> (&sum)[T][V]) const {
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) {
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) {
        Store(sum[t][v], data + t * stride + v * kLanesOf<Number>);
      }
    }
  }
};

// Adds tiles to an output of doubles, which has `columns` more columns.
template <class Number>
struct ToDoubles {
  double* data;
  int64_t stride;
  int64_t columns;

  ToDoubles At(int64_t row, int64_t column) const {
    return {data + row * stride + column, stride, columns - column};
  }

  template <int T, int V>
  inline __attribute__((always_inline)) void Begin(VectorOf<Number> (&sum)[T][V]) const {
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) {
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) sum[t][v] = VectorOf<Number>{};
    }
  }

  template <int T, int V>
  inline __attribute__((always_inline)) void End(const VectorOf<Number> (&sum)[T][V]) const {
    constexpr int kWidth = V * kLanesOf<Number>;
    alignas(64) Number tile[T * kWidth];
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) {
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) {
        Store(sum[t][v], tile + t * kWidth + v * kLanesOf<Number>);
      }
    }
    for (int t = 0; t < T; ++t) AddRow<kWidth>(tile + t * kWidth, data + t * stride);
  }

  template <int kWidth>
  inline __attribute__((always_inline)) void AddRow(const Number* from, double* to) const {
    if (columns >= kWidth) {
      for (int j = 0; j < kWidth; ++j) to[j] += from[j];
    } else {
      for (int64_t j = 0; j < columns; ++j) to[j] += from[j];
    }
  }
};

// V vectors of columns: tiles of T rows, then of fewer.
template <int T, int V, class Number, class Out>
void AddColumns(const Strided<Number>& a, int64_t rows, int64_t depth, const Number* b,
                int64_t b_stride, const Out& out) {
  int64_t r = 0;
  for (; r + T <= rows; r += T) {
    VectorOf<Number> sum[T][V];
    const Out to = out.At(r, 0);
    to.Begin(sum);
    ProductTile<T, V>({a.data + r * a.row_stride, a.row_stride, a.step}, b, b_stride, depth,
                      sum);
    to.End(sum);
  }
  if constexpr (T > 1) {
    AddColumns<T / 2, V>({a.data + r * a.row_stride, a.row_stride, a.step}, rows - r, depth, b,
                         b_stride, out.At(r, 0));
  }
}

// The last columns, at most V vectors of them.
template <int V, class Number, class Out>
void AddLastColumns(const ProductSize& size, const Strided<Number>& a, const Number* b,
                    int64_t b_stride, const Out& out) {
  if (size.width > (V - 1) * kLanesOf<Number>) {
    AddColumns<kTileRows, V>(a, size.rows, size.depth, b, b_stride, out);
  } else if constexpr (V > 1) {
    AddLastColumns<V - 1>(size, a, b, b_stride, out);
  }
}

template <class Number, class Out>
void AddAllColumns(const ProductSize& size, const Strided<Number>& a, const Number* b,
                   int64_t b_stride, const Out& out) {
  constexpr int kWide = kTileVectors * kLanesOf<Number>;
  int64_t j = 0;
  for (; j + kWide <= size.width; j += kWide) {
    AddColumns<kTileRows, kTileVectors>(a, size.rows, size.depth, b + j, b_stride,
                                        out.At(0, j));
  }
  AddLastColumns<kTileVectors>({size.rows, size.depth, size.width - j}, a, b + j, b_stride,
                               out.At(0, j));
}

}  // namespace

#define LARGEOUT_DEFINE_DENSE_PRODUCT(Number)                                                  \
  void AddProduct(const ProductSize& size, const Strided<Number>& a, const Number* b,          \
                  int64_t b_stride, Number* out, int64_t out_stride) {                         \
    AddAllColumns(size, a, b, b_stride, SameType<Number>{out, out_stride});                    \
  }                                                                                            \
  void AddProductToDoubles(const ProductSize& size, const Strided<Number>& a, const Number* b, \
                           int64_t b_stride, double* out, int64_t out_stride) {                \
    AddAllColumns(size, a, b, b_stride, ToDoubles<Number>{out, out_stride, size.width});       \
  }
LARGEOUT_DEFINE_DENSE_PRODUCT(float)
LARGEOUT_DEFINE_DENSE_PRODUCT(double)
#undef LARGEOUT_DEFINE_DENSE_PRODUCT

}  // namespace LARGEOUT_SIMD
}  // namespace largeout
