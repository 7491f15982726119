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

// V vectors of consecutive columns of a row. With kPart, the last vector has only `part`
// columns.
template <int V, bool kPart>
struct Columns {
  static constexpr int kVectors = V;
  int64_t part;

  Floats Read(const float* from, int v) const {
    return kPart && v == V - 1 ? LoadPart(from + v * kLanes, part) : Load(from + v * kLanes);
  }
  void Write(Floats value, int v, float* to) const {
    if (kPart && v == V - 1) {
      StorePart(value, part, to + v * kLanes);
    } else {
      Store(value, to + v * kLanes);
    }
  }
};

template <int V, class Function>
inline void CallForColumns(int64_t part, int64_t column, const Function& function) {
  if (part > 0) {
    function(Columns<V + 1, true>{part}, column);
  } else if constexpr (V > 0) {
    function(Columns<V, false>{0}, column);
  }
}

// Calls function(columns, first column) for groups of columns whose sums fit into registers.
template <class Function>
inline void ForColumns(int64_t dim, const Function& function) {
  int64_t column = 0;
  for (; column + 8 * kLanes <= dim; column += 8 * kLanes) {
    function(Columns<8, false>{0}, column);
  }
  const int64_t part = (dim - column) % kLanes;
  switch ((dim - column) / kLanes) {
    case 0:
      return CallForColumns<0>(part, column, function);
    case 1:
      return CallForColumns<1>(part, column, function);
    case 2:
      return CallForColumns<2>(part, column, function);
    case 3:
      return CallForColumns<3>(part, column, function);
    case 4:
      return CallForColumns<4>(part, column, function);
    case 5:
      return CallForColumns<5>(part, column, function);
    case 6:
      return CallForColumns<6>(part, column, function);
    default:
      return CallForColumns<7>(part, column, function);
  }
}

// sum[V] += weight * row.
template <int V, bool kPart>
inline void AddRow(Columns<V, kPart> columns, float weight, const float* row, Floats* sum) {
  const Floats factor = Broadcast(weight);
#pragma GCC unroll 8
  for (int v = 0; v < V; ++v) sum[v] += factor * columns.Read(row, v);
}

// The gradients of a run: the rows times their weights.
struct Run {
  const DotSegments& in;
  int64_t begin;
  int64_t end;
  uint32_t per_row = static_cast<uint32_t>(in.per_row);

  // Calls add(weight, row) for each gradient.
  template <class Add>
  void ForEach(const Add& add) const {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t position = in.positions[i];
      if (position < in.own_size) {
        add(in.d_logits[position],
            in.features + static_cast<uint32_t>(position) / per_row * in.dim);
      } else {
        add(1.0f, in.d_shared_rows + (position - in.own_size) * in.dim);
      }
    }
  }
};

inline void SumRun(const Run& run, bool first, int64_t dim, float* sum) {
  ForColumns(dim, [&](auto columns, int64_t column) {
    Floats total[columns.kVectors] = {};
    run.ForEach(
        [&](float weight, const float* row) { AddRow(columns, weight, row + column, total); });
    float* const to = sum + column;
#pragma GCC unroll 8
    for (int v = 0; v < columns.kVectors; ++v) {
      columns.Write(first ? total[v] : columns.Read(to, v) + total[v], v, to);
    }
  });
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
    ForColumns(matrix.dim, [&](auto columns, int64_t column) {
      Floats total[columns.kVectors] = {};
      for (int64_t i = 0; i < own.per_row; ++i) {
        Prefetch(matrix, ids + i, end_of_ids, column);
        if (ids[i] < 0) continue;
        const float* row = matrix.embeddings + ids[i] * matrix.dim;
        AddRow(columns, weight[i], row + column, total);
      }
#pragma GCC unroll 8
      for (int v = 0; v < columns.kVectors; ++v) columns.Write(total[v], v, sum + column);
    });
  }
}

void SumDotSegments(const DotSegments& in, int64_t begin, int64_t end, float* rows) {
  for (int64_t segment = begin; segment < end; ++segment) {
    const int64_t first = in.offsets[segment], last = in.offsets[segment + 1];
    float* sum = rows + segment * in.dim;
    for (int64_t i = first; i < last; i += kRunLength) {
      const int64_t end_of_run = last - i > kRunLength ? i + kRunLength : last;
      SumRun({in, i, end_of_run}, i == first, in.dim, sum);
    }
  }
}

}  // namespace LARGEOUT_SIMD
}  // namespace largeout
