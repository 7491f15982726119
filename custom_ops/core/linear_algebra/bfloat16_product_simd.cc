#include "custom_ops/core/base/simd.h"
#include "custom_ops/core/linear_algebra/bfloat16_pairs.h"
#include "custom_ops/core/linear_algebra/bfloat16_product.h"
#include "custom_ops/core/linear_algebra/dense_product_tile.h"

namespace largeout {
namespace LARGEOUT_SIMD {
namespace {

// The numbers of pairs as floats. The conversion is exact.
inline Floats Evens(Words pairs) { return (Floats)(pairs << 16); }
inline Floats Odds(Words pairs) { return (Floats)(pairs & 0xffff0000u); }

inline Words LoadWords(const Pair* from) {
  Words value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

// A tile of T rows and V vectors of columns. Its sums are in registers.
template <int T, int V>
inline __attribute__((always_inline)) void AddTile(int64_t pairs, const PairMatrix& a,
                                                   const PairMatrix& b, float* out,
                                                   int64_t out_stride) {
  Floats sum[T][V];
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) {
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) sum[t][v] = Load(out + t * out_stride + v * kLanes);
  }
  for (int64_t k = 0; k < pairs; ++k) {
    Floats even[V], odd[V];
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) {
      const Words columns = LoadWords(b.data + k * b.stride + v * kLanes);
      even[v] = Evens(columns);
      odd[v] = Odds(columns);
    }
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) {
      const Words row = Words{} + a.data[t * a.stride + k];
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) sum[t][v] += Evens(row) * even[v];
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) sum[t][v] += Odds(row) * odd[v];
    }
  }
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t) {
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) Store(sum[t][v], out + t * out_stride + v * kLanes);
  }
}

// Four rows at a time; 4 divides kPairTile.
template <int V>
void AddColumns(const ProductSize& size, const PairMatrix& a, const PairMatrix& b, float* out,
                int64_t out_stride) {
  for (int64_t r = 0; r < size.rows; r += 4) {
    AddTile<4, V>(size.depth / 2, {a.data + r * a.stride, a.stride}, b, out + r * out_stride,
                  out_stride);
  }
}

}  // namespace

void AddPairProduct(const ProductSize& size, const PairMatrix& a, const PairMatrix& b,
                    float* out, int64_t out_stride) {
  constexpr int64_t kWide = kTileVectors * kLanes;
  int64_t j = 0;
  for (; j + kWide <= size.width; j += kWide) {
    AddColumns<kTileVectors>(size, a, {b.data + j, b.stride}, out + j, out_stride);
  }
  for (; j < size.width; j += kLanes) {
    AddColumns<1>(size, a, {b.data + j, b.stride}, out + j, out_stride);
  }
}

}  // namespace LARGEOUT_SIMD
}  // namespace largeout
