#include "custom_ops/core/candidates/accidental_hits.h"

namespace largeout {

void PositionsOfIds::Build(const int64_t* ids, int64_t size) {
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

int64_t PositionsOfIds::SlotOf(int64_t id) const {
  const uint64_t hash = static_cast<uint64_t>(id) * 0x9E3779B97F4A7C15u;
  int64_t slot = static_cast<int64_t>(hash >> (64 - bits_));
  const int64_t last = static_cast<int64_t>(first_.size()) - 1;
  while (first_[slot] != kNone && ids_[first_[slot]] != id) slot = (slot + 1) & last;
  return slot;
}

AccidentalHits::AccidentalHits(const Candidates& candidates) : in_(candidates) {
  if (in_.shared) shared_.Build(in_.ids, in_.num_candidates);
}

void AccidentalHits::Fill(int64_t example, float fill, PositionsOfIds* scratch,
                          float* values) const {
  const int64_t* labels = in_.labels + example * in_.num_labels;
  if (in_.shared) {
    for (int64_t l = 0; l < in_.num_labels; ++l) {
      if (labels[l] < 0) continue;
      shared_.ForEachPosition(labels[l], [&](int32_t i) { values[i] = fill; });
    }
    return;
  }
  scratch->Build(labels, in_.num_labels);
  const int64_t* ids = in_.ids + example * in_.num_candidates;
  for (int64_t i = 0; i < in_.num_candidates; ++i) {
    if (ids[i] >= 0 && scratch->Contains(ids[i])) values[i] = fill;
  }
}

}  // namespace largeout
