// The kernels of candidates.cu: a row of the batch a block, but for the column sums.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_CANDIDATES_BODY_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_CANDIDATES_BODY_H_

#include <cmath>
#include <cstdint>

#include "custom_ops/core/candidates.h"
#include "custom_ops/cuda/block_tools.h"

namespace largeout {
namespace cuda {

inline constexpr int kCandidateThreads = 256;

// The labels of a row: a bit for each hash of one lets nearly all candidates pass, the
// others are compared with every label.
class RowLabels {
 public:
  static constexpr int kWords = 128;
  static constexpr int kSharedBytes = kWords * sizeof(uint32_t);

  LARGEOUT_DEVICE RowLabels(const Candidates& in, char* shared)
      : in_(in), words_(reinterpret_cast<uint32_t*>(shared)) {}

  // For the whole block.
  template <class Block>
  LARGEOUT_DEVICE void Build(const Block& block, int64_t row) {
    labels_ = in_.labels + row * in_.num_labels;
    ids_ = in_.shared ? in_.ids : in_.ids + row * in_.num_candidates;
    block.ForEachThread([&](int thread) {
      for (int i = thread; i < kWords; i += block.size()) words_[i] = 0;
    });
    block.ForEachThread([&](int thread) {
      for (int64_t l = thread; l < in_.num_labels; l += block.size()) {
        if (labels_[l] >= 0) SetBits(words_ + Word(labels_[l]), Bit(labels_[l]));
      }
    });
  }

  // Whether candidate i of the row is one of its labels.
  LARGEOUT_DEVICE bool Hit(int64_t i) const {
    const int64_t id = ids_[i];
    if (id < 0 || (words_[Word(id)] & Bit(id)) == 0) return false;
    for (int64_t l = 0; l < in_.num_labels; ++l) {
      if (labels_[l] == id) return true;
    }
    return false;
  }

 private:
  // The 7 highest bits of the hash name a word, the next 5 a bit.
  LARGEOUT_DEVICE static uint64_t Hash(int64_t id) {
    return static_cast<uint64_t>(id) * 0x9E3779B97F4A7C15u;
  }
  LARGEOUT_DEVICE static int Word(int64_t id) { return static_cast<int>(Hash(id) >> 57); }
  LARGEOUT_DEVICE static uint32_t Bit(int64_t id) { return 1u << (Hash(id) >> 52 & 31); }

  const Candidates& in_;
  uint32_t* const words_;
  const int64_t* labels_ = nullptr;
  const int64_t* ids_ = nullptr;
};

// Calls use(row, i, hit) for all candidates i of all rows.
template <class Block, class Use>
LARGEOUT_DEVICE void ForEachCandidate(const Block& block, const Candidates& in, char* shared,
                                      const Use& use) {
  RowLabels labels(in, shared);
  for (int64_t row = block.index(); row < in.batch; row += block.num_blocks()) {
    labels.Build(block, row);
    block.ForEachThread([&](int thread) {
      for (int64_t i = thread; i < in.num_candidates; i += block.size()) {
        use(row, i, labels.Hit(i));
      }
    });
  }
}

struct FillHitsBody {
  Candidates in;
  float fill;
  float* values;

  static constexpr int kSharedBytes = RowLabels::kSharedBytes;

  template <class Block>
  LARGEOUT_DEVICE void operator()(const Block& block, char* shared) const {
    ForEachCandidate(block, in, shared, [&](int64_t row, int64_t i, bool hit) {
      if (hit) values[row * in.num_candidates + i] = fill;
    });
  }
};

// The logits of candidates as the loss sees them.
struct ShiftedLogits {
  const float* logits;
  Offsets offsets;
  int64_t num_candidates;

  LARGEOUT_DEVICE float At(int64_t row, int64_t i) const {
    return logits[row * num_candidates + i] + offsets.Row(row, num_candidates)[i];
  }
};

struct ShiftBody {
  Candidates in;
  ShiftedLogits logits;
  float fill;
  float* shifted;  // may be the logits

  static constexpr int kSharedBytes = RowLabels::kSharedBytes;

  template <class Block>
  LARGEOUT_DEVICE void operator()(const Block& block, char* shared) const {
    ForEachCandidate(block, in, shared, [&](int64_t row, int64_t i, bool hit) {
      shifted[row * in.num_candidates + i] = hit ? fill : logits.At(row, i);
    });
  }
};

// Sum of exponentials: total * exp(shift).
struct ScaledSum {
  float shift;
  float total;
};

LARGEOUT_DEVICE inline void AddExponential(float value, ScaledSum* sum) {
  if (value > sum->shift) {
    sum->total = sum->total * expf(sum->shift - value) + 1.0f;
    sum->shift = value;
  } else {
    sum->total += expf(value - sum->shift);
  }
}

LARGEOUT_DEVICE inline ScaledSum SumOf(const ScaledSum& a, const ScaledSum& b) {
  const float shift = fmaxf(a.shift, b.shift);
  return {shift, a.total * expf(a.shift - shift) + b.total * expf(b.shift - shift)};
}

struct CandidateLogPartitionBody {
  Candidates in;
  ShiftedLogits logits;
  float* log_partition;

  static constexpr int kSharedBytes =
      RowLabels::kSharedBytes + kCandidateThreads * sizeof(ScaledSum);

  template <class Block>
  LARGEOUT_DEVICE void operator()(const Block& block, char* shared) const {
    RowLabels labels(in, shared);
    ScaledSum* const sums = reinterpret_cast<ScaledSum*>(shared + RowLabels::kSharedBytes);
    for (int64_t row = block.index(); row < in.batch; row += block.num_blocks()) {
      labels.Build(block, row);
      block.ForEachThread([&](int thread) {
        ScaledSum sum{kLowestFloat, 0.0f};
        for (int64_t i = thread; i < in.num_candidates; i += block.size()) {
          AddExponential(labels.Hit(i) ? kLowestFloat : logits.At(row, i), &sum);
        }
        sums[thread] = sum;
      });
      for (int half = kCandidateThreads / 2; half > 0; half /= 2) {
        block.ForEachThread([&](int thread) {
          if (thread < half) sums[thread] = SumOf(sums[thread], sums[thread + half]);
        });
      }
      block.ForEachThread([&](int thread) {
        if (thread == 0) log_partition[row] = LogOf(sums[0]);
      });
    }
  }

 private:
  // The lowest float where there is nothing to sum.
  LARGEOUT_DEVICE static float LogOf(const ScaledSum& sum) {
    return sum.total == 0 ? sum.shift : sum.shift + logf(sum.total);
  }
};

struct CandidateGradientBody {
  Candidates in;
  ShiftedLogits logits;
  const float* log_partition;
  const float* d_log_partition;
  float* d_logits;

  static constexpr int kSharedBytes = RowLabels::kSharedBytes;

  template <class Block>
  LARGEOUT_DEVICE void operator()(const Block& block, char* shared) const {
    ForEachCandidate(block, in, shared, [&](int64_t row, int64_t i, bool hit) {
      const float share = hit ? 0.0f : expf(logits.At(row, i) - log_partition[row]);
      d_logits[row * in.num_candidates + i] = hit ? 0.0f : d_log_partition[row] * share;
    });
  }
};

// Rows of the batch that one thread adds up.
inline constexpr int64_t kRowsPerPart = 64;

// Item p * num_candidates + i: the sum of column i over the rows of part p.
struct ColumnPartsBody {
  const float* values;  // [batch, num_candidates]
  int64_t batch;
  int64_t num_candidates;
  float* parts;  // [parts, num_candidates]

  LARGEOUT_DEVICE void operator()(int64_t item) const {
    const int64_t first = item / num_candidates * kRowsPerPart;
    const int64_t last = first + kRowsPerPart < batch ? first + kRowsPerPart : batch;
    const float* const column = values + item % num_candidates;
    float sum = 0;
    for (int64_t row = first; row < last; ++row) sum += column[row * num_candidates];
    parts[item] = sum;
  }
};

// Item i: the sum of column i of the parts.
struct ColumnSumsBody {
  const float* parts;
  int64_t num_parts;
  int64_t num_candidates;
  float* sums;

  LARGEOUT_DEVICE void operator()(int64_t i) const {
    float sum = 0;
    for (int64_t p = 0; p < num_parts; ++p) sum += parts[p * num_candidates + i];
    sums[i] = sum;
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
