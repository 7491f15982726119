// The kernels of candidates.cu that fill, shift and rank.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_CANDIDATES_BODY_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_CANDIDATES_BODY_H_

#include <cstdint>

#include "custom_ops/core/candidates.h"
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
  float* shifted;  // may be the logits

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

struct CandidateRanksBody {
  Candidates in;  // without ids
  const float* logits;
  const float* true_logits;
  int64_t* ranks;

  static constexpr int kSharedBytes = sizeof(int);

  template <class Block>
  LARGEOUT_DEVICE void operator()(const Block& block, char* shared) const {
    int* const above = reinterpret_cast<int*>(shared);
    const int64_t total = in.batch * in.num_labels;
    for (int64_t at = block.index(); at < total; at += block.num_blocks()) {
      const int64_t row = at / in.num_labels;
      block.ForEachThread([&](int thread) {
        if (thread == 0) *above = 0;
      });
      block.ForEachThread([&](int thread) {
        const float* const others = logits + row * in.num_candidates;
        int count = 0;
        for (int64_t i = thread; i < in.num_candidates; i += block.size()) {
          count += others[i] > true_logits[at];
        }
        if (count > 0) AddToCounter(above, count);
      });
      block.ForEachThread([&](int thread) {
        if (thread == 0) ranks[at] = Rank(row, at, *above);
      });
    }
  }

 private:
  LARGEOUT_DEVICE int64_t Rank(int64_t row, int64_t at, int64_t above) const {
    const float score = true_logits[at];
    if (in.labels[at] < 0 || score != score) return in.num_candidates + in.num_labels;
    const int64_t first = row * in.num_labels;
    return above +
           LabelsAbove(in.labels + first, true_logits + first, in.num_labels, at - first);
  }
};

}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_CANDIDATES_BODY_H_
