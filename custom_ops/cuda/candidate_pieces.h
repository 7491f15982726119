// Shared by the kernels of candidates.cu: pieces (the ids and logits of a few examples at a few
// candidates), and the accidental hits among them. A thread reads a whole piece before it uses
// any of it, so it waits for memory only once.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_CANDIDATE_PIECES_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_CANDIDATE_PIECES_H_

#include <cstdint>

#include "custom_ops/core/base/host_device.h"
#include "custom_ops/core/base/rounding.h"
#include "custom_ops/core/candidates/candidates.h"
#include "custom_ops/cuda/block_tools.h"

namespace largeout {
namespace cuda {

inline constexpr int kCandidateThreads = 256;

// The labels of up to kRows examples. A single label per example is compared directly. With
// several labels, a filter of two bits per label rules out most candidates; the others are
// compared with every label.
template <int kRows>
class RowLabels {
 public:
  static constexpr int kWords = 64;  // of the filter, per example
  static constexpr int kSharedBytes = kRows * kWords * sizeof(uint32_t);

  LARGEOUT_DEVICE RowLabels(const Candidates& in, char* shared)
      : in_(in), words_(reinterpret_cast<uint32_t*>(shared)) {}

  // Loads the labels of kRows examples, starting at `first`. All threads of the block call it.
  template <class Block>
  LARGEOUT_DEVICE void Build(const Block& block, int64_t first) {
    first_ = first;
    if (single()) return;
    block.ForEachThread([&](int thread) {
      for (int i = thread; i < kRows * kWords; i += kCandidateThreads) words_[i] = 0;
    });
    block.ForEachThread([&](int thread) {
      constexpr int kLanes = 32;  // threads that share the labels of one example
      for (int r = thread / kLanes; r < kRows; r += kCandidateThreads / kLanes) {
        if (first + r >= in_.batch) continue;
        for (int64_t l = thread % kLanes; l < in_.num_labels; l += kLanes) Add(first + r, l);
      }
    });
  }

  LARGEOUT_DEVICE bool single() const { return in_.num_labels == 1; }

  // Whether `id` is the label of the example. REQUIRES: single().
  LARGEOUT_DEVICE bool IsSingle(int64_t row, int64_t id) const {
    const int64_t label = in_.labels[row];
    return (label >= 0) & (label == id);  // no branch
  }

  // The same for several labels. May return true for an id that is not a label, but rarely
  // does.
  LARGEOUT_DEVICE bool MayBeLabel(int64_t row, int64_t id) const {
    return (WordOf(row, id) & Bits(id)) == Bits(id);
  }

  LARGEOUT_DEVICE bool IsLabel(int64_t row, int64_t id) const {
    if (id < 0) return false;
    const int64_t* const labels = in_.labels + row * in_.num_labels;
    for (int64_t l = 0; l < in_.num_labels; ++l) {
      if (labels[l] == id) return true;
    }
    return false;
  }

 private:
  // The 6 highest bits select a word; the next 5 and the following 5 select its two bits.
  LARGEOUT_DEVICE static uint32_t Hash(int64_t id) {
    return static_cast<uint32_t>(id) * 0x9E3779B1u;
  }
  LARGEOUT_DEVICE static uint32_t Bits(int64_t id) {
    return 1u << (Hash(id) >> 21 & 31) | 1u << (Hash(id) >> 16 & 31);
  }
  LARGEOUT_DEVICE uint32_t& WordOf(int64_t row, int64_t id) const {
    return words_[static_cast<int>(row - first_) * kWords + static_cast<int>(Hash(id) >> 26)];
  }

  LARGEOUT_DEVICE void Add(int64_t row, int64_t l) {
    const int64_t label = in_.labels[row * in_.num_labels + l];
    if (label >= 0) SetBits(&WordOf(row, label), Bits(label));
  }

  const Candidates& in_;
  uint32_t* const words_;
  int64_t first_ = 0;
};

// A piece: examples row, row + 1, ... at candidates column, column + kCandidateThreads, ....
// kSame: all examples have the same ids and offsets, which are then read once.
template <bool kSame, int kRows, int kColumns>
struct IdPiece {
  int64_t at[kSame ? 1 : kRows][kColumns];

  LARGEOUT_DEVICE void Load(const Candidates& in, int64_t row, int64_t column) {
    const int64_t step = in.shared ? 0 : in.num_candidates;
    LARGEOUT_UNROLL
    for (int r = 0; r < (kSame ? 1 : kRows); ++r) {
      const int64_t* const ids = in.ids + (kSame ? 0 : (row + r) * step) + column;
      LARGEOUT_UNROLL
      for (int c = 0; c < kColumns; ++c) at[r][c] = ids[c * kCandidateThreads];
    }
  }

  // Calls use(r, c) for each candidate of the piece that is a label of its example.
  template <class Labels, class Use>
  LARGEOUT_DEVICE void ForEachHit(const Labels& labels, int64_t row, const Use& use) const {
    if (labels.single()) {
      ForEach([&](int r, int c, int64_t id) {
        if (labels.IsSingle(row + r, id)) use(r, c);
      });
      return;
    }
    bool any = false;
    ForEach([&](int r, int, int64_t id) { any |= labels.MayBeLabel(row + r, id); });
    if (!any) return;
    ForEach([&](int r, int c, int64_t id) {
      if (labels.MayBeLabel(row + r, id) && labels.IsLabel(row + r, id)) use(r, c);
    });
  }

 private:
  template <class Use>
  LARGEOUT_DEVICE void ForEach(const Use& use) const {
    LARGEOUT_UNROLL
    for (int r = 0; r < kRows; ++r) {
      LARGEOUT_UNROLL
      for (int c = 0; c < kColumns; ++c) use(r, c, at[kSame ? 0 : r][c]);
    }
  }
};

// The logits of candidates with the offsets of the loss.
struct ShiftedLogits {
  const float* logits;
  Offsets offsets;
  int64_t num_candidates;
};

template <bool kSame, int kRows, int kColumns>
struct LogitPiece {
  float at[kRows][kColumns];

  LARGEOUT_DEVICE void Load(const ShiftedLogits& in, int64_t row, int64_t column) {
    const int64_t n = in.num_candidates, step = in.offsets.per_row ? n : 0;
    LARGEOUT_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const float* const from = in.logits + (row + r) * n + column;
      LARGEOUT_UNROLL
      for (int c = 0; c < kColumns; ++c) at[r][c] = from[c * kCandidateThreads];
    }
    float offset[kSame ? 1 : kRows][kColumns];
    LARGEOUT_UNROLL
    for (int r = 0; r < (kSame ? 1 : kRows); ++r) {
      const float* const from = in.offsets.values + (kSame ? 0 : (row + r) * step) + column;
      LARGEOUT_UNROLL
      for (int c = 0; c < kColumns; ++c) offset[r][c] = from[c * kCandidateThreads];
    }
    LARGEOUT_UNROLL
    for (int r = 0; r < kRows; ++r) {
      LARGEOUT_UNROLL
      for (int c = 0; c < kColumns; ++c) at[r][c] += offset[kSame ? 0 : r][c];
    }
  }
};

inline constexpr int kRowsTogether = 8;

// An integer as a type, so that a function can take it as a constant.
template <int kValue>
struct Size {};

// Calls use(row, size) for pieces that cover the examples [begin, end). Pieces of kRowsTogether
// examples come first, which need no check per example; the remaining examples come one by one.
template <class Use>
LARGEOUT_DEVICE void ForEachPiece(int64_t begin, int64_t end, const Use& use) {
  int64_t row = begin;
  for (; row + kRowsTogether <= end; row += kRowsTogether) use(row, Size<kRowsTogether>());
  for (; row < end; ++row) use(row, Size<1>());
}

// The number of tiles of `rows` examples, with one candidate per thread.
LARGEOUT_HOST_DEVICE inline int64_t NumTiles(const Candidates& in, int64_t rows) {
  return CeilDiv(in.batch, rows) * CeilDiv(in.num_candidates, kCandidateThreads);
}

// Calls use(labels, begin, end, column) for each thread's column of all tiles of kRows
// examples. Shared memory: that of RowLabels<kRows>.
template <int kRows, class Block, class Use>
LARGEOUT_DEVICE void ForEachColumn(const Block& block, const Candidates& in, char* shared,
                                   const Use& use) {
  RowLabels<kRows> labels(in, shared);
  const int64_t across = CeilDiv(in.num_candidates, kCandidateThreads);
  const int64_t tiles = NumTiles(in, kRows);
  for (int64_t tile = block.index(); tile < tiles; tile += block.num_blocks()) {
    const int64_t begin = tile / across * kRows;
    const int64_t end = begin + kRows < in.batch ? begin + kRows : in.batch;
    labels.Build(block, begin);
    block.ForEachThread([&](int thread) {
      const int64_t column = tile % across * kCandidateThreads + thread;
      if (column < in.num_candidates) use(labels, begin, end, column);
    });
  }
}

}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_CANDIDATE_PIECES_H_
