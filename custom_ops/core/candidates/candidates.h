// Operations on the logits of the candidates of a sampled loss: the correction by the sampler's
// expected counts, the removal of accidental hits (candidates that are a label of the example),
// and the ranks of the labels.
//
//   labels: [batch, num_labels], padded with negative ids.
//   candidates: [num_candidates] if `shared`, else [batch, num_candidates].
//
// Matrices are row-major. No argument is read beyond these shapes.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_CANDIDATES_CANDIDATES_H_
#define LARGEOUT_CUSTOM_OPS_CORE_CANDIDATES_CANDIDATES_H_

#include <cstdint>

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

// The numbers that are added to the logits: the bias of a candidate minus the log of its
// expected count. values: [num_candidates], or [batch, num_candidates] if `per_row`.
struct Offsets {
  const float* values;
  bool per_row;

  const float* Row(int64_t row, int64_t num_candidates) const {
    return per_row ? values + row * num_candidates : values;
  }
};

// The labels to rank: ids, padded with negative ones, and logits, both [batch, num_labels].
struct RankedLabels {
  const int64_t* ids;
  const float* logits;
  int64_t num_labels;
};

// The number of labels of the example that rank before label `l`. Equal scores rank by slot.
inline int64_t LabelsAbove(const int64_t* labels, const float* scores, int64_t num_labels,
                           int64_t l) {
  int64_t above = 0;
  for (int64_t i = 0; i < num_labels; ++i) {
    if (i == l || labels[i] < 0 || labels[i] == labels[l]) continue;
    above +=
        ComesBefore({scores[i], static_cast<int32_t>(i)}, {scores[l], static_cast<int32_t>(l)});
  }
  return above;
}

// Sets values[b, i] = fill if candidate i of example b is one of its labels. O(batch *
// num_labels + num_candidates) if shared, else O(batch * (num_labels + num_candidates)).
void FillAccidentalHits(const Candidates& candidates, float fill, const ParallelFor& parallel,
                        float* values);

// shifted[b, i] = logits[b, i] + offset of candidate i of example b, and `fill` at accidental
// hits. `shifted` may be the same array as `logits`.
void ShiftCandidateLogits(const Candidates& candidates, const float* logits,
                          const Offsets& offsets, float fill, const ParallelFor& parallel,
                          float* shifted);

// ranks[b, l] = the number of candidates and other labels of the example that score higher than
// label l. A candidate scores its logit plus its offset; an accidental hit does not count, and
// neither does a candidate that is equal to the label. Equal labels rank by slot. Padded slots
// and NaN scores rank last: num_candidates + num_labels. logits: [batch, num_candidates];
// ranks: [batch, num_labels]. The hits are those of `candidates.labels`, which may differ from
// `labels`.
void CandidateRanks(const Candidates& candidates, const float* logits, const Offsets& offsets,
                    const RankedLabels& labels, const ParallelFor& parallel, int64_t* ranks);

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_CANDIDATES_CANDIDATES_H_
