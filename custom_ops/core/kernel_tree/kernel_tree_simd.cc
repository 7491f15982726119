#include "custom_ops/core/kernel_tree/kernel_tree_simd.h"

#include "custom_ops/core/base/simd.h"

namespace largeout {
namespace LARGEOUT_SIMD {
namespace {

// The number of vectors and rows that are multiplied at once, with sums in registers.
inline constexpr int kMostVectors = 4;
inline constexpr int kMostRows = kVectorRegisters == 32 ? 4 : 2;
// How many of their numbers are multiplied at once: some rows and vectors together fit into the
// first-level cache.
inline constexpr int64_t kBlock = 768;
inline constexpr int64_t kPrefetched = 4096;  // floats

#if defined(__SSE2__)
// The sum of each group of four lanes.
inline __m128 SumFours(Floats x) {
#if defined(__AVX512F__)
  const __m512d pairs = (__m512d)x;
  const __m256 half = (__m256)_mm512_maskz_extractf64x4_pd(0xff, pairs, 0) +
                      (__m256)_mm512_maskz_extractf64x4_pd(0xff, pairs, 1);
  return _mm256_castps256_ps128(half) + _mm256_extractf128_ps(half, 1);
#elif defined(__AVX2__)
  return _mm256_castps256_ps128((__m256)x) + _mm256_extractf128_ps((__m256)x, 1);
#else
  return (__m128)x;
#endif
}
#endif

// sums[r]: the sum of the lanes of vector r. It does not depend on R.
template <int R>
inline __attribute__((always_inline)) void SumLanesOfEach(const Floats (&vectors)[R],
                                                          float (&sums)[4]) {
#if defined(__SSE2__)
  __m128 fours[4] = {};
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) fours[r] = SumFours(vectors[r]);
  const __m128 low = _mm_unpacklo_ps(fours[0], fours[2]) + _mm_unpackhi_ps(fours[0], fours[2]);
  const __m128 high = _mm_unpacklo_ps(fours[1], fours[3]) + _mm_unpackhi_ps(fours[1], fours[3]);
  _mm_storeu_ps(sums, _mm_unpacklo_ps(low, high) + _mm_unpackhi_ps(low, high));
#elif defined(__aarch64__)
  float32x4_t fours[4] = {};
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) fours[r] = (float32x4_t)vectors[r];
  vst1q_f32(sums, vpaddq_f32(vpaddq_f32(fours[0], fours[1]), vpaddq_f32(fours[2], fours[3])));
#else
  for (int r = 0; r < R; ++r) sums[r] = SumLanes(vectors[r]);
#endif
}

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
    float totals[4];
    SumLanesOfEach(sum[v], totals);
    float* to = products + v * rows.num_rows + row;
    for (int r = 0; r < R; ++r) {
      for (int64_t i = k; i < end; ++i)
        totals[r] += vectors[v][i] * first_row[r * rows.dim + i];
      to[r] += totals[r];
    }
  }
}

// All rows, R at a time, and then the remaining rows.
template <int V, int R>
void AddRows(const AdjacentRows& rows, int64_t row, const float* const* vectors, int64_t begin,
             int64_t end, float* products) {
  for (; row + R <= rows.num_rows; row += R) {
    AddTile<V, R>(rows, row, vectors, begin, end, products);
  }
  if constexpr (R > 1) AddRows<V, R - 1>(rows, row, vectors, begin, end, products);
}

// All vectors, V at a time, and then the remaining vectors.
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

// The processor fetches later lines on its own.
inline void Prefetch(const AdjacentRows& rows) {
  const int64_t size = rows.num_rows * rows.dim;
  for (int64_t i = 0; i < size && i < kPrefetched; i += 16) __builtin_prefetch(rows.data + i);
}

}  // namespace

void MultiplyRows(const AdjacentRows& rows, const float* const* vectors, int64_t num_vectors,
                  const AdjacentRows& ahead, float* products) {
  Prefetch(ahead);
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
