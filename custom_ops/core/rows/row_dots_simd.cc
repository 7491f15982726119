#include "custom_ops/core/rows/row_dots_simd.h"

#include <cstdint>

#include "custom_ops/core/base/simd.h"
#include "custom_ops/core/rows/row_runs.h"

namespace largeout {
namespace LARGEOUT_SIMD {
namespace {

constexpr int64_t kRowsAhead = 8;  // how far ahead rows are prefetched

// Prefetches the row of a class some places ahead, if there is one, starting at a column. The
// first line starts the walk of the page table; the processor fetches the following lines on
// its own.
inline void Prefetch(const ClassMatrix& matrix, const int64_t* id, const int64_t* end_of_ids,
                     int64_t column) {
  if (end_of_ids - id <= kRowsAhead || id[kRowsAhead] < 0) return;
  __builtin_prefetch(matrix.embeddings + id[kRowsAhead] * matrix.dim + column);
}

inline void PrefetchBias(const ClassMatrix& matrix, const int64_t* id,
                         const int64_t* end_of_ids) {
  if (matrix.bias == nullptr || end_of_ids - id <= kRowsAhead || id[kRowsAhead] < 0) return;
  __builtin_prefetch(matrix.bias + id[kRowsAhead]);
}

inline float Dot(const float* a, const float* b, int64_t dim) {
  Floats sum[4] = {};
  int64_t k = 0;
  for (; k + 4 * kLanes <= dim; k += 4 * kLanes) {
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) {
      sum[v] += Load(a + k + v * kLanes) * Load(b + k + v * kLanes);
    }
  }
  for (; k + kLanes <= dim; k += kLanes) sum[0] += Load(a + k) * Load(b + k);
  float total = SumLanes((sum[0] + sum[1]) + (sum[2] + sum[3]));
  for (; k < dim; ++k) total += a[k] * b[k];
  return total;
}

// Columns [column, column + V * kLanes) of the sum of weights[i] * w_ids[i].
template <int V>
inline void SumColumns(const ClassMatrix& matrix, const int64_t* ids, int64_t count,
                       const int64_t* end_of_ids, const float* weights, int64_t column,
                       float* sum) {
  Floats total[V] = {};
  for (int64_t i = 0; i < count; ++i) {
    Prefetch(matrix, ids + i, end_of_ids, column);
    if (ids[i] < 0) continue;
    const float* row = matrix.embeddings + ids[i] * matrix.dim + column;
    const Floats weight = Broadcast(weights[i]);
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) total[v] += weight * Load(row + v * kLanes);
  }
#pragma GCC unroll 8
  for (int v = 0; v < V; ++v) Store(total[v], sum + column + v * kLanes);
}

inline void SumLastColumns(const ClassMatrix& matrix, const int64_t* ids, int64_t count,
                           const float* weights, int64_t column, float* sum) {
  for (int64_t k = column; k < matrix.dim; ++k) sum[k] = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (ids[i] < 0) continue;
    const float* row = matrix.embeddings + ids[i] * matrix.dim;
    for (int64_t k = column; k < matrix.dim; ++k) sum[k] += weights[i] * row[k];
  }
}

// sum = weight * row if it is the first row, else sum += weight * row.
inline void Add(float weight, const float* row, int64_t dim, bool first, float* sum) {
  const Floats factor = Broadcast(weight);
  int64_t k = 0;
  for (; k + kLanes <= dim; k += kLanes) {
    const Floats old = first ? Floats{} : Load(sum + k);
    Store(old + factor * Load(row + k), sum + k);
  }
  for (; k < dim; ++k) sum[k] = (first ? 0.0f : sum[k]) + weight * row[k];
}

// Sums the run that starts at `begin`. Returns where the next run starts.
inline int64_t SumRun(const DotSegments& in, int64_t begin, int64_t end, float* sum) {
  const uint32_t per_row = static_cast<uint32_t>(in.per_row);
  if (end - begin > kRunLength) end = begin + kRunLength;
  for (int64_t i = begin; i < end; ++i) {
    const int64_t position = in.positions[i];
    const bool own = position < in.own_size;
    const float* row = own ? in.features + static_cast<uint32_t>(position) / per_row * in.dim
                           : in.d_shared_rows + (position - in.own_size) * in.dim;
    Add(own ? in.d_logits[position] : 1.0f, row, in.dim, i == begin, sum);
  }
  return end;
}

}  // namespace

void DotOwnClasses(const ClassMatrix& matrix, const DotExamples& own, const float* features,
                   int64_t begin, int64_t end, float* logits) {
  const int64_t* end_of_ids = own.ids + end * own.per_row;
  for (int64_t b = begin; b < end; ++b) {
    const float* feature = features + b * matrix.dim;
    for (int64_t i = b * own.per_row; i < (b + 1) * own.per_row; ++i) {
      const int64_t id = own.ids[i];
      Prefetch(matrix, own.ids + i, end_of_ids, 0);
      PrefetchBias(matrix, own.ids + i, end_of_ids);
      if (id < 0) {
        logits[i] = own.no_class;
        continue;
      }
      const float bias = matrix.bias == nullptr ? 0.0f : matrix.bias[id];
      logits[i] = bias + Dot(feature, matrix.embeddings + id * matrix.dim, matrix.dim);
    }
  }
}

void SumOwnClasses(const ClassMatrix& matrix, const DotExamples& own, const float* weights,
                   int64_t begin, int64_t end, float* sums) {
  const int64_t* end_of_ids = own.ids + end * own.per_row;
  for (int64_t b = begin; b < end; ++b) {
    const int64_t* ids = own.ids + b * own.per_row;
    const float* weight = weights + b * own.per_row;
    float* sum = sums + b * matrix.dim;
    int64_t column = 0;
    for (; column + 8 * kLanes <= matrix.dim; column += 8 * kLanes) {
      SumColumns<8>(matrix, ids, own.per_row, end_of_ids, weight, column, sum);
    }
    if (column + 4 * kLanes <= matrix.dim) {
      SumColumns<4>(matrix, ids, own.per_row, end_of_ids, weight, column, sum);
      column += 4 * kLanes;
    }
    for (; column + kLanes <= matrix.dim; column += kLanes) {
      SumColumns<1>(matrix, ids, own.per_row, end_of_ids, weight, column, sum);
    }
    if (column < matrix.dim) {
      SumLastColumns(matrix, ids, own.per_row, weight, column, sum);
    }
  }
}

void SumDotSegments(const DotSegments& in, int64_t begin, int64_t end, float* run,
                    float* rows) {
  for (int64_t segment = begin; segment < end; ++segment) {
    const int64_t last = in.offsets[segment + 1];
    float* sum = rows + segment * in.dim;
    int64_t i = SumRun(in, in.offsets[segment], last, sum);
    while (i < last) {
      i = SumRun(in, i, last, run);
      Add(1, run, in.dim, false, sum);
    }
  }
}

}  // namespace LARGEOUT_SIMD
}  // namespace largeout
