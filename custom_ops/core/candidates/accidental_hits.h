// Finds the accidental hits of a batch: candidates that are a label of the same example.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_CANDIDATES_ACCIDENTAL_HITS_H_
#define LARGEOUT_CUSTOM_OPS_CORE_CANDIDATES_ACCIDENTAL_HITS_H_

#include <cstdint>
#include <vector>

#include "custom_ops/core/candidates/candidates.h"

namespace largeout {

// Finds all positions of an id among `ids`, which may repeat. This is a hash table with linear
// probing whose entries start a chain of positions.
class PositionsOfIds {
 public:
  // Takes O(size) time. Keeps a reference to `ids`. REQUIRES: size < 2^31, so that positions
  // fit into 32 bits.
  void Build(const int64_t* ids, int64_t size);

  bool Contains(int64_t id) const { return first_[SlotOf(id)] != kNone; }

  template <class Visit>
  void ForEachPosition(int64_t id, const Visit& visit) const {
    for (int32_t i = first_[SlotOf(id)]; i != kNone; i = next_[i]) visit(i);
  }

 private:
  static constexpr int32_t kNone = -1;

  // The slot of `id`, or the empty slot where it would be inserted.
  int64_t SlotOf(int64_t id) const;

  const int64_t* ids_ = nullptr;
  int bits_ = 0;
  std::vector<int32_t> first_;
  std::vector<int32_t> next_;
};

// For shared candidates: one table of the candidates, with a look-up per label, O(num_labels)
// per example. For candidates per example: a table of the example's labels, with a look-up per
// candidate.
class AccidentalHits {
 public:
  explicit AccidentalHits(const Candidates& candidates);

  // Sets values[i] = fill if candidate i is one of the labels of the example. `scratch`
  // belongs to the calling thread.
  void Fill(int64_t example, float fill, PositionsOfIds* scratch, float* values) const;

 private:
  const Candidates in_;
  PositionsOfIds shared_;
};

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_CANDIDATES_ACCIDENTAL_HITS_H_
