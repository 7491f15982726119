// Sums of the gradients of each row, in the order of core/rows/row_runs.h.
//
// The first kernel sums all whole runs, so a row with many gradients occupies as many threads
// as many rows with few gradients. The second kernel adds, for each row, the sums of its runs
// and its remaining gradients.
//
// A group of threads computes a row. A thread processes Terms::kColumnsAtOnce columns at a
// time, kGroup apart. It reads these columns of kTermsAtOnce terms before it adds them, so that
// enough loads are in flight.
//
// Terms: the gradients to sum. `width` is their number of columns. At(place) is the term at a
// place of merged.positions: a weight, and the numbers Read(column).

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_ROW_SUMS_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_ROW_SUMS_H_

#include <cstdint>

#include "custom_ops/core/rows/row_runs.h"
#include "custom_ops/cuda/block_tools.h"
#include "custom_ops/cuda/row_merge.h"

namespace largeout {
namespace cuda {

inline constexpr int kGroup = 32;
inline constexpr int kTermsAtOnce = 4;
inline constexpr int kRowThreads = 256;
inline constexpr int kRowsPerBlock = kRowThreads / kGroup;

// A term that is a row of numbers.
struct RowTerm {
  float weight;
  const float* row;
  LARGEOUT_DEVICE float Read(int64_t column) const { return row[column]; }
};

// The gradient of id i is row i of `values`.
struct GradientTerms {
  static constexpr int kColumnsAtOnce = 4;
  const int32_t* positions;
  const float* values;
  int64_t width;
  LARGEOUT_DEVICE RowTerm At(int32_t place) const {
    return {1, values + positions[place] * width};
  }
};

// The sums of the runs as terms.
struct RunTerms {
  const float* run_sums;
  int64_t width;
  LARGEOUT_DEVICE RowTerm At(int32_t run) const { return {1, run_sums + run * width}; }
};

// sums[k] += column + k * kGroup of kCount terms, in order.
template <int kCount, class Terms, int kColumns>
LARGEOUT_DEVICE void AddTerms(const Terms& terms, int32_t first, int64_t column,
                              float (&sums)[kColumns]) {
  float weights[kCount], numbers[kCount][kColumns];
  LARGEOUT_UNROLL
  for (int j = 0; j < kCount; ++j) {
    const auto term = terms.At(first + j);
    weights[j] = term.weight;
    LARGEOUT_UNROLL
    for (int k = 0; k < kColumns; ++k) {
      const int64_t at = column + k * kGroup;
      numbers[j][k] = at < terms.width ? term.Read(at) : 0;
    }
  }
  LARGEOUT_UNROLL
  for (int j = 0; j < kCount; ++j) {
    LARGEOUT_UNROLL
    for (int k = 0; k < kColumns; ++k) {
      sums[k] = MultiplyAdd(weights[j], numbers[j][k], sums[k]);
    }
  }
}

// sums[k] = the sum of column + k * kGroup of the terms [begin, end). Without terms it is -0,
// which does not change any number that it is added to.
template <class Terms, int kColumns>
LARGEOUT_DEVICE void SumTerms(const Terms& terms, int32_t begin, int32_t end, int64_t column,
                              float (&sums)[kColumns]) {
  LARGEOUT_UNROLL
  for (int k = 0; k < kColumns; ++k) sums[k] = -0.0f;
  for (; begin + kTermsAtOnce <= end; begin += kTermsAtOnce) {
    AddTerms<kTermsAtOnce>(terms, begin, column, sums);
  }
  for (; begin < end; ++begin) AddTerms<1>(terms, begin, column, sums);
}

// The same for all terms of a segment. SumRunsBody has summed its whole runs.
template <class Terms, int kColumns>
LARGEOUT_DEVICE void SumSegment(const MergedRows& merged, const Terms& terms, int64_t segment,
                                int64_t column, float (&sums)[kColumns]) {
  const int32_t begin = merged.offsets[segment], end = merged.offsets[segment + 1];
  const int32_t runs = (end - begin) / kRunLength, first_run = begin / kRunLength;
  SumTerms(RunTerms{merged.run_sums, terms.width}, first_run, first_run + runs, column, sums);
  float rest[kColumns];
  SumTerms(terms, begin + runs * kRunLength, end, column, rest);
  LARGEOUT_UNROLL
  for (int k = 0; k < kColumns; ++k) sums[k] += rest[k];
}

// The place where a whole run starts within the kRunLength places from `low` on, or -1. At most
// one run starts there, and it covers the last of these places.
LARGEOUT_DEVICE inline int32_t WholeRunFrom(const MergedRows& merged, int32_t low) {
  const int32_t segment = merged.started[low + kRunLength - 1] - 1;
  if (segment < 0) return -1;
  int32_t begin = merged.offsets[segment];
  if (begin < low) begin += (low - begin + kRunLength - 1) / kRunLength * kRunLength;
  return merged.offsets[segment + 1] - begin >= kRunLength ? begin : -1;
}

// run_sums[r] = the sum of the whole run that starts within the places [r, r + 1) * kRunLength.
// Run i of a segment that starts at `begin` has r = begin / kRunLength + i.
template <class Terms>
struct SumRunsBody {
  MergedRows merged;
  Terms terms;

  template <class Block>
  LARGEOUT_DEVICE void operator()(const Block& block, char*) const {
    block.ForEachThread([&](int thread) {
      const int64_t step = block.num_blocks() * kRowsPerBlock;
      int64_t run = block.index() * kRowsPerBlock + thread / kGroup;
      for (; run < NumRuns(merged.num_ids); run += step) Sum(run, thread % kGroup);
    });
  }

 private:
  LARGEOUT_DEVICE void Sum(int64_t run, int lane) const {
    const int32_t begin = WholeRunFrom(merged, static_cast<int32_t>(run * kRunLength));
    if (begin < 0) return;
    for (int64_t column = lane; column < terms.width;
         column += Terms::kColumnsAtOnce * kGroup) {
      float sums[Terms::kColumnsAtOnce];
      SumTerms(terms, begin, begin + kRunLength, column, sums);
      LARGEOUT_UNROLL
      for (int k = 0; k < Terms::kColumnsAtOnce; ++k) {
        const int64_t at = column + k * kGroup;
        if (at < terms.width) merged.run_sums[run * terms.width + at] = sums[k];
      }
    }
  }
};

// Writes the sums of the segments, followed by zeros with id -1.
template <class Terms, class Index>
struct WriteSumsBody {
  MergedRows merged;
  Terms terms;
  int64_t rows;
  int64_t dim;
  Index* ids;       // [rows]
  float* sums;      // [rows, dim]
  float* last_sum;  // [rows]: sum of column dim; or null

  template <class Block>
  LARGEOUT_DEVICE void operator()(const Block& block, char*) const {
    block.ForEachThread([&](int thread) {
      const int64_t num_segments = *merged.num_segments;
      const int64_t step = block.num_blocks() * kRowsPerBlock;
      int64_t row = block.index() * kRowsPerBlock + thread / kGroup;
      for (; row < rows; row += step) Write(row, row < num_segments, thread % kGroup);
    });
  }

 private:
  LARGEOUT_DEVICE void Write(int64_t row, bool is_segment, int lane) const {
    if (lane == 0) ids[row] = is_segment ? static_cast<Index>(merged.ids[row]) : Index{-1};
    for (int64_t column = lane; column < terms.width;
         column += Terms::kColumnsAtOnce * kGroup) {
      float of_columns[Terms::kColumnsAtOnce] = {};
      if (is_segment) SumSegment(merged, terms, row, column, of_columns);
      LARGEOUT_UNROLL
      for (int k = 0; k < Terms::kColumnsAtOnce; ++k) {
        const int64_t at = column + k * kGroup;
        if (at < dim) sums[row * dim + at] = of_columns[k];
        if (at == dim && last_sum != nullptr) last_sum[row] = of_columns[k];
      }
    }
  }
};

}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_ROW_SUMS_H_
