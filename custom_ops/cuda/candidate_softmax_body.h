// The kernels of candidates.cu that compute exponentials.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_CANDIDATE_SOFTMAX_BODY_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_CANDIDATE_SOFTMAX_BODY_H_

#include <cmath>
#include <cstdint>

#include "custom_ops/core/candidates/candidates.h"
#include "custom_ops/cuda/block_tools.h"
#include "custom_ops/cuda/candidate_pieces.h"

namespace largeout {
namespace cuda {

// A sum of exponentials: total * exp(shift).
struct ScaledSum {
  float shift;
  float total;
};

// Rescales once for all values. Values of -inf add nothing.
template <int kSize>
LARGEOUT_DEVICE void AddExponentials(const float (&values)[kSize], ScaledSum* sum) {
  float shift = sum->shift;
  LARGEOUT_UNROLL
  for (int i = 0; i < kSize; ++i) shift = fmaxf(shift, values[i]);
  float total = sum->total * expf(sum->shift - shift);
  LARGEOUT_UNROLL
  for (int i = 0; i < kSize; ++i) total += expf(values[i] - shift);
  *sum = {shift, total};
}

LARGEOUT_DEVICE inline ScaledSum SumOf(const ScaledSum& a, const ScaledSum& b) {
  const float shift = fmaxf(a.shift, b.shift);
  return {shift, a.total * expf(a.shift - shift) + b.total * expf(b.shift - shift)};
}

// A block processes kRows examples, so that it reads ids and offsets that they share only once.
template <bool kSame>
struct CandidateLogPartitionBody {
  Candidates in;
  ShiftedLogits logits;
  float* log_partition;

  static constexpr int kRows = 2, kColumns = 4;  // the size of a piece
  using Labels = RowLabels<kRows>;
  static constexpr int kSumBytes = kRows * kCandidateThreads * sizeof(ScaledSum);
  static constexpr int kSharedBytes = kSumBytes + Labels::kSharedBytes;

  template <class Block>
  LARGEOUT_DEVICE void operator()(const Block& block, char* shared) const {
    ScaledSum* const sums = reinterpret_cast<ScaledSum*>(shared);
    Labels labels(in, shared + kSumBytes);
    const int64_t step = block.num_blocks() * kRows;
    for (int64_t first = block.index() * kRows; first < in.batch; first += step) {
      const int rows = in.batch - first < kRows ? 1 : kRows;
      labels.Build(block, first);
      block.ForEachThread([&](int thread) {
        if (rows == kRows) {
          Sum(labels, first, thread, sums, Size<kRows>());
        } else {
          Sum(labels, first, thread, sums, Size<1>());
        }
      });
      for (int half = kCandidateThreads / 2; half > 0; half /= 2) {
        block.ForEachThread([&](int thread) {
          if (thread >= rows * half) return;
          ScaledSum* const sum = sums + thread / half * kCandidateThreads + thread % half;
          sum[0] = SumOf(sum[0], sum[half]);
        });
      }
      block.ForEachThread([&](int thread) {
        if (thread < rows)
          log_partition[first + thread] = LogOf(sums[thread * kCandidateThreads]);
      });
    }
  }

 private:
  // Sums over the candidates of one thread.
  template <int kSize>
  LARGEOUT_DEVICE void Sum(const Labels& labels, int64_t first, int thread, ScaledSum* sums,
                           Size<kSize>) const {
    ScaledSum sum[kSize];
    LARGEOUT_UNROLL
    for (int r = 0; r < kSize; ++r) sum[r] = {kLowestFloat, 0.0f};
    int64_t i = thread;
    for (; i + (kColumns - 1) * kCandidateThreads < in.num_candidates;
         i += kColumns * kCandidateThreads) {
      AddPiece<kColumns>(labels, first, i, sum);
    }
    for (; i < in.num_candidates; i += kCandidateThreads) AddPiece<1>(labels, first, i, sum);
    LARGEOUT_UNROLL
    for (int r = 0; r < kSize; ++r) sums[r * kCandidateThreads + thread] = sum[r];
  }

  template <int kWidth, int kSize>
  LARGEOUT_DEVICE void AddPiece(const Labels& labels, int64_t row, int64_t column,
                                ScaledSum (&sum)[kSize]) const {
    IdPiece<kSame, kSize, kWidth> ids;
    LogitPiece<kSame, kSize, kWidth> piece;
    ids.Load(in, row, column);
    piece.Load(logits, row, column);
    ids.ForEachHit(labels, row, [&](int r, int c) { piece.at[r][c] = MinusInfinity(); });
    LARGEOUT_UNROLL
    for (int r = 0; r < kSize; ++r) AddExponentials(piece.at[r], &sum[r]);
  }

  // The lowest float if the sum has no terms.
  LARGEOUT_DEVICE static float LogOf(const ScaledSum& sum) {
    return sum.total == 0 ? sum.shift : sum.shift + logf(sum.total);
  }
};

// The number of examples that one thread adds up.
inline constexpr int kRowsPerPart = 64;

// A block processes a tile of kRowsPerPart examples. Each thread adds up the columns of its
// candidates.
template <bool kSame>
struct CandidateGradientBody {
  Candidates in;
  ShiftedLogits logits;
  const float* log_partition;
  const float* d_log_partition;
  float* d_logits;
  float* parts;  // [parts, num_candidates]: sums of d_logits over a part; or null

  using Labels = RowLabels<kRowsPerPart>;
  static constexpr int kSharedBytes = Labels::kSharedBytes;

  template <class Block>
  LARGEOUT_DEVICE void operator()(const Block& block, char* shared) const {
    ForEachColumn<kRowsPerPart>(
        block, in, shared,
        [&](const Labels& labels, int64_t begin, int64_t end, int64_t column) {
          float sum = 0;
          ForEachPiece(begin, end,
                       [&](int64_t row, auto size) { Use(labels, row, column, size, &sum); });
          if (parts == nullptr) return;
          parts[begin / kRowsPerPart * in.num_candidates + column] = sum;
        });
  }

 private:
  // Writes d_logits of a piece and adds it to the sum.
  template <int kRows>
  LARGEOUT_DEVICE void Use(const Labels& labels, int64_t row, int64_t column, Size<kRows>,
                           float* sum) const {
    IdPiece<kSame, kRows, 1> ids;
    LogitPiece<kSame, kRows, 1> piece;
    ids.Load(in, row, column);
    piece.Load(logits, row, column);
    float shift[kRows], weight[kRows];
    LARGEOUT_UNROLL
    for (int r = 0; r < kRows; ++r) {
      shift[r] = log_partition[row + r];
      weight[r] = d_log_partition[row + r];
    }
    LARGEOUT_UNROLL
    for (int r = 0; r < kRows; ++r) {
      piece.at[r][0] = RoundedProduct(weight[r], expf(piece.at[r][0] - shift[r]));
    }
    ids.ForEachHit(labels, row, [&](int r, int c) { piece.at[r][c] = 0.0f; });
    float* const to = d_logits + row * in.num_candidates + column;
    LARGEOUT_UNROLL
    for (int r = 0; r < kRows; ++r) {
      to[r * in.num_candidates] = piece.at[r][0];
      *sum += piece.at[r][0];
    }
  }
};

// Item i: adds up column i of the parts, in order.
struct ColumnSumsBody {
  const float* parts;
  int64_t num_parts;
  int64_t num_candidates;
  float* sums;

  LARGEOUT_DEVICE void operator()(int64_t i) const {
    float sum = 0;
    for (int64_t first = 0; first < num_parts; first += kRowsTogether) {
      const float* const from = parts + first * num_candidates + i;
      float part[kRowsTogether];
      LARGEOUT_UNROLL
      for (int p = 0; p < kRowsTogether; ++p) {
        part[p] = p < num_parts - first ? from[p * num_candidates] : 0.0f;
      }
      LARGEOUT_UNROLL
      for (int p = 0; p < kRowsTogether; ++p) sum += part[p];
    }
    sums[i] = sum;
  }
};

}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_CANDIDATE_SOFTMAX_BODY_H_
