#include "custom_ops/core/candidates.h"

#include <vector>

namespace largeout {
namespace {

// Finds all positions of an id among `ids`, repeated ids included: a hash
// table with linear probing, whose entries start a chain of positions.
class PositionsOfIds {
 public:
  // O(size). Positions fit in 32 bits: REQUIRES size < 2^31.
  void Build(const int64_t* ids, int64_t size) {
    ids_ = ids;
    bits_ = 2;
    while ((int64_t{1} << bits_) < 2 * size) ++bits_;
    first_.assign(int64_t{1} << bits_, kNone);
    next_.resize(size);
    for (int64_t i = 0; i < size; ++i) {
      int32_t& first = first_[SlotOf(ids[i])];
      next_[i] = first;
      first = static_cast<int32_t>(i);
    }
  }

  bool Contains(int64_t id) const { return first_[SlotOf(id)] != kNone; }

  template <class Visit>
  void ForEachPosition(int64_t id, const Visit& visit) const {
    for (int32_t i = first_[SlotOf(id)]; i != kNone; i = next_[i]) visit(i);
  }

 private:
  static constexpr int32_t kNone = -1;

  // The slot that holds `id`, or the empty one where it would go.
  int64_t SlotOf(int64_t id) const {
    const uint64_t hash = static_cast<uint64_t>(id) * 0x9E3779B97F4A7C15u;
    int64_t slot = static_cast<int64_t>(hash >> (64 - bits_));
    const int64_t last = static_cast<int64_t>(first_.size()) - 1;
    while (first_[slot] != kNone && ids_[first_[slot]] != id) slot = (slot + 1) & last;
    return slot;
  }

  const int64_t* ids_ = nullptr;
  int bits_ = 0;
  std::vector<int32_t> first_;
  std::vector<int32_t> next_;
};

// Shared candidates: one table of them, asked for each label.
void FillShared(const Candidates& in, const PositionsOfIds& positions, int64_t row, float fill,
                float* values) {
  for (int64_t l = 0; l < in.num_labels; ++l) {
    const int64_t label = in.labels[row * in.num_labels + l];
    if (label < 0) continue;
    positions.ForEachPosition(label, [&](int32_t i) { values[i] = fill; });
  }
}

// Candidates of the row's own: a table of its labels, asked for each candidate.
void FillRow(const Candidates& in, int64_t row, float fill, PositionsOfIds* labels,
             float* values) {
  labels->Build(in.labels + row * in.num_labels, in.num_labels);
  const int64_t* ids = in.ids + row * in.num_candidates;
  for (int64_t i = 0; i < in.num_candidates; ++i) {
    if (ids[i] >= 0 && labels->Contains(ids[i])) values[i] = fill;
  }
}

// Calls prepare(row), then fills the hits of the row, for all rows.
template <class Prepare>
void ForEachRowFill(const Candidates& in, float fill, const ParallelFor& parallel,
                    float* values, const Prepare& prepare) {
  PositionsOfIds positions;
  if (in.shared) positions.Build(in.ids, in.num_candidates);
  parallel(in.batch, in.num_candidates + 10 * in.num_labels, [&](int64_t begin, int64_t end) {
    PositionsOfIds labels;
    for (int64_t row = begin; row < end; ++row) {
      prepare(row);
      float* row_values = values + row * in.num_candidates;
      if (in.shared) {
        FillShared(in, positions, row, fill, row_values);
      } else {
        FillRow(in, row, fill, &labels, row_values);
      }
    }
  });
}

// Labels of the row that stand before label `l`: higher, or equal and earlier.
int64_t LabelsAbove(const int64_t* labels, const float* scores, int64_t num_labels, int64_t l) {
  int64_t above = 0;
  for (int64_t i = 0; i < num_labels; ++i) {
    if (i == l || labels[i] < 0 || labels[i] == labels[l]) continue;
    above += scores[i] > scores[l] || (scores[i] == scores[l] && i < l);
  }
  return above;
}

int64_t RankOf(const Candidates& in, const float* logits, const int64_t* labels,
               const float* scores, int64_t l) {
  const float score = scores[l];
  if (labels[l] < 0 || score != score) return in.num_candidates + in.num_labels;
  int32_t above = 0;
  for (int64_t i = 0; i < in.num_candidates; ++i) above += logits[i] > score;
  return above + LabelsAbove(labels, scores, in.num_labels, l);
}

}  // namespace

void FillAccidentalHits(const Candidates& in, float fill, const ParallelFor& parallel,
                        float* values) {
  ForEachRowFill(in, fill, parallel, values, [](int64_t) {});
}

void CorrectCandidateLogits(const Candidates& in, const float* logits,
                            const float* log_expected_count, bool counts_per_row, float fill,
                            const ParallelFor& parallel, float* corrected) {
  ForEachRowFill(in, fill, parallel, corrected, [&](int64_t row) {
    const int64_t start = row * in.num_candidates;
    const float* counts = log_expected_count + (counts_per_row ? start : 0);
    for (int64_t i = 0; i < in.num_candidates; ++i) {
      corrected[start + i] = logits[start + i] - counts[i];
    }
  });
}

void CandidateRanks(const Candidates& in, const float* logits, const float* true_logits,
                    const ParallelFor& parallel, int64_t* ranks) {
  const int64_t cost = in.num_labels * (in.num_candidates / 4 + in.num_labels);
  parallel(in.batch, cost, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t start = row * in.num_labels;
      for (int64_t l = 0; l < in.num_labels; ++l) {
        ranks[start + l] = RankOf(in, logits + row * in.num_candidates, in.labels + start,
                                  true_logits + start, l);
      }
    }
  });
}

}  // namespace largeout
