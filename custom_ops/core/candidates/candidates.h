// What a sampled loss does with the logits of its candidates besides learning
// from them: correct them by the sampler's expected counts, take out accidental
// hits (candidates that are a positive of the row), rank the positives.
//
// labels: [batch, num_labels], padded with negative ids.
// candidates: [num_candidates] if `shared`, else [batch, num_candidates].
// Matrices are row-major. No argument is read beyond these shapes.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_CANDIDATES_CANDIDATES_H_
#define LARGEOUT_CUSTOM_OPS_CORE_CANDIDATES_CANDIDATES_H_

#include <cstdint>

#include "custom_ops/core/base/host_device.h"
#include "custom_ops/core/base/parallel.h"
#include "custom_ops/core/class_scan/score_order.h"

namespace largeout {

struct Candidates {
  const int64_t* labels;
  const int64_t* ids;
  int64_t batch;
  int64_t num_labels;
  int64_t num_candidates;
  bool shared;
};

// What is added to the logits: the bias of a candidate less the log of its expected count.
// values: [num_candidates], or [batch, num_candidates] if `per_row`.
struct Offsets {
  const float* values;
  bool per_row;

  LARGEOUT_HOST_DEVICE const float* Row(int64_t row, int64_t num_candidates) const {
    return per_row ? values + row * num_candidates : values;
  }
};

// Labels of the row that come before label `l`, equal scores by their slots.
LARGEOUT_HOST_DEVICE inline int64_t LabelsAbove(const int64_t* labels, const float* scores,
                                                int64_t num_labels, int64_t l) {
  int64_t above = 0;
  for (int64_t i = 0; i < num_labels; ++i) {
    if (i == l || labels[i] < 0 || labels[i] == labels[l]) continue;
    above +=
        ComesBefore({scores[i], static_cast<int32_t>(i)}, {scores[l], static_cast<int32_t>(l)});
  }
  return above;
}

// values[b, i] = fill wherever candidate i of row b is one of the row's labels.
// O(batch * num_labels + num_candidates) if shared, else
// O(batch * (num_labels + num_candidates)).
void FillAccidentalHits(const Candidates& candidates, float fill, const ParallelFor& parallel,
                        float* values);

// shifted[b, i] = logits[b, i] + offset of candidate i of row b, and `fill` at accidental
// hits. `shifted` may be `logits`.
void ShiftCandidateLogits(const Candidates& candidates, const float* logits,
                          const Offsets& offsets, float fill, const ParallelFor& parallel,
                          float* shifted);

// ranks[b, l] = number of candidates and of other labels of the row that score
// higher than label l: logits [batch, num_candidates], true_logits and ranks
// [batch, num_labels]. Equal labels go by their slot; a candidate equal to a
// label does not count. Padded slots and NaN scores rank last:
// num_candidates + num_labels. Reads `candidates.labels`, not `candidates.ids`.
void CandidateRanks(const Candidates& candidates, const float* logits, const float* true_logits,
                    const ParallelFor& parallel, int64_t* ranks);

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_CANDIDATES_CANDIDATES_H_
