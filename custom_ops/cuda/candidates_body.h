// The kernels of candidates.cu that fill, shift and rank.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_CANDIDATES_BODY_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_CANDIDATES_BODY_H_

#include <cstdint>

#include "custom_ops/core/candidates/candidates.h"
#include "custom_ops/cuda/block_tools.h"
#include "custom_ops/cuda/candidate_pieces.h"

namespace largeout {
namespace cuda {

template <bool kSame>
struct FillHitsBody {
  Candidates in;
  float fill;
  float* values;

  using Labels = RowLabels<kRowsTogether>;
  static constexpr int kSharedBytes = Labels::kSharedBytes;

  template <class Block>
  LARGEOUT_DEVICE void operator()(const Block& block, char* shared) const {
    ForEachColumn<kRowsTogether>(
        block, in, shared,
        [&](const Labels& labels, int64_t begin, int64_t end, int64_t column) {
          ForEachPiece(begin, end,
                       [&](int64_t row, auto size) { Fill(labels, row, column, size); });
        });
  }

 private:
  template <int kRows>
  LARGEOUT_DEVICE void Fill(const Labels& labels, int64_t row, int64_t column,
                            Size<kRows>) const {
    IdPiece<kSame, kRows, 1> ids;
    ids.Load(in, row, column);
    float* const to = values + row * in.num_candidates + column;
    ids.ForEachHit(labels, row, [&](int r, int) { to[r * in.num_candidates] = fill; });
  }
};

template <bool kSame>
struct ShiftBody {
  Candidates in;
  ShiftedLogits logits;
  float fill;
  float* shifted;  // may be the same array as the logits

  using Labels = RowLabels<kRowsTogether>;
  static constexpr int kSharedBytes = Labels::kSharedBytes;

  template <class Block>
  LARGEOUT_DEVICE void operator()(const Block& block, char* shared) const {
    ForEachColumn<kRowsTogether>(
        block, in, shared,
        [&](const Labels& labels, int64_t begin, int64_t end, int64_t column) {
          ForEachPiece(begin, end,
                       [&](int64_t row, auto size) { Shift(labels, row, column, size); });
        });
  }

 private:
  template <int kRows>
  LARGEOUT_DEVICE void Shift(const Labels& labels, int64_t row, int64_t column,
                             Size<kRows>) const {
    IdPiece<kSame, kRows, 1> ids;
    LogitPiece<kSame, kRows, 1> piece;
    ids.Load(in, row, column);
    piece.Load(logits, row, column);
    ids.ForEachHit(labels, row, [&](int r, int c) { piece.at[r][c] = fill; });
    float* const to = shifted + row * in.num_candidates + column;
    LARGEOUT_UNROLL
    for (int r = 0; r < kRows; ++r) to[r * in.num_candidates] = piece.at[r][0];
  }
};

// A block ranks all labels of one example. It reads the logits once per kLabels labels.
struct CandidateRanksBody {
  Candidates in;  // without ids
  const float* logits;
  const float* true_logits;
  int64_t* ranks;

  static constexpr int kLabels = 4, kColumns = 4;  // processed together
  static constexpr int kSharedBytes = kLabels * sizeof(int);

  template <class Block>
  LARGEOUT_DEVICE void operator()(const Block& block, char* shared) const {
    int* const above = reinterpret_cast<int*>(shared);
    for (int64_t row = block.index(); row < in.batch; row += block.num_blocks()) {
      for (int64_t first = 0; first < in.num_labels; first += kLabels) {
        block.ForEachThread([&](int thread) {
          if (thread < kLabels) above[thread] = 0;
        });
        block.ForEachThread([&](int thread) { Count(row, first, thread, above); });
        block.ForEachThread([&](int thread) {
          const int64_t l = first + thread;
          if (thread < kLabels && l < in.num_labels) {
            ranks[row * in.num_labels + l] = Rank(row, l, above[thread]);
          }
        });
      }
    }
  }

 private:
  // Adds, to above[l], how many of the thread's candidates score higher than label first + l.
  LARGEOUT_DEVICE void Count(int64_t row, int64_t first, int thread, int* above) const {
    const float* const scores = true_logits + row * in.num_labels + first;
    const float* const others = logits + row * in.num_candidates;
    float score[kLabels];
    int count[kLabels] = {};
    LARGEOUT_UNROLL
    for (int l = 0; l < kLabels; ++l) {
      score[l] = first + l < in.num_labels ? scores[l] : -MinusInfinity();  // none is above
    }
    for (int64_t i = thread; i < in.num_candidates; i += kColumns * kCandidateThreads) {
      float other[kColumns];
      LARGEOUT_UNROLL
      for (int c = 0; c < kColumns; ++c) {
        const int64_t at = i + c * kCandidateThreads;
        other[c] = at < in.num_candidates ? others[at] : MinusInfinity();  // above no label
      }
      LARGEOUT_UNROLL
      for (int c = 0; c < kColumns; ++c) {
        LARGEOUT_UNROLL
        for (int l = 0; l < kLabels; ++l) count[l] += other[c] > score[l];
      }
    }
    LARGEOUT_UNROLL
    for (int l = 0; l < kLabels; ++l) {
      if (count[l] > 0) AddToCounter(above + l, count[l]);
    }
  }

  LARGEOUT_DEVICE int64_t Rank(int64_t row, int64_t l, int64_t above) const {
    const int64_t* const labels = in.labels + row * in.num_labels;
    const float* const scores = true_logits + row * in.num_labels;
    if (labels[l] < 0 || scores[l] != scores[l]) return in.num_candidates + in.num_labels;
    return above + LabelsAbove(labels, scores, in.num_labels, l);
  }
};

}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_CANDIDATES_BODY_H_
