// Finds the accidental hits of a batch: candidates that are a label of the row.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_CANDIDATES_ACCIDENTAL_HITS_H_
#define LARGEOUT_CUSTOM_OPS_CORE_CANDIDATES_ACCIDENTAL_HITS_H_

#include <cstdint>
#include <vector>

#include "custom_ops/core/candidates/candidates.h"

namespace largeout {

// Finds all positions of an id among `ids`, repeated ids included: a hash
// table with linear probing, whose entries start a chain of positions.
class PositionsOfIds {
 public:
  // O(size). Positions fit in 32 bits: REQUIRES size < 2^31. Keeps `ids`.
  void Build(const int64_t* ids, int64_t size);

  bool Contains(int64_t id) const { return first_[SlotOf(id)] != kNone; }

  template <class Visit>
  void ForEachPosition(int64_t id, const Visit& visit) const {
    for (int32_t i = first_[SlotOf(id)]; i != kNone; i = next_[i]) visit(i);
  }

 private:
  static constexpr int32_t kNone = -1;

  // The slot that holds `id`, or the empty one where it would go.
  int64_t SlotOf(int64_t id) const;

  const int64_t* ids_ = nullptr;
  int bits_ = 0;
  std::vector<int32_t> first_;
  std::vector<int32_t> next_;
};

// Shared candidates: one table of them, asked for each label of a row, O(num_labels) a row.
// Candidates of each row's own: a table of its labels, asked for each candidate.
class AccidentalHits {
 public:
  explicit AccidentalHits(const Candidates& candidates);

  // values[i] = fill wherever candidate i of `row` is one of the row's labels.
  // `scratch` is the calling thread's own.
  void Fill(int64_t row, float fill, PositionsOfIds* scratch, float* values) const;

 private:
  const Candidates in_;
  PositionsOfIds shared_;
};

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_CANDIDATES_ACCIDENTAL_HITS_H_
