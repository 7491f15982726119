// What a sampled loss does with the logits of its candidates besides learning
// from them: correct them by the sampler's expected counts, take out accidental
// hits (candidates that are a positive of the row), rank the positives.
//
// labels: [batch, num_labels], padded with negative ids.
// candidates: [num_candidates] if `shared`, else [batch, num_candidates].
// Matrices are row-major. No argument is read beyond these shapes.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_CANDIDATES_H_
#define LARGEOUT_CUSTOM_OPS_CORE_CANDIDATES_H_

#include <cstdint>

#include "custom_ops/core/parallel.h"

namespace largeout {

struct Candidates {
  const int64_t* labels;
  const int64_t* ids;
  int64_t batch;
  int64_t num_labels;
  int64_t num_candidates;
  bool shared;
};

// values[b, i] = fill wherever candidate i of row b is one of the row's labels.
// O(batch * num_labels + num_candidates) if shared, else
// O(batch * (num_labels + num_candidates)).
void FillAccidentalHits(const Candidates& candidates, float fill, const ParallelFor& parallel,
                        float* values);

// corrected[b, i] = logits[b, i] - log_expected_count[i] (or [b, i] if
// `counts_per_row`), and `fill` at accidental hits. `corrected` may be `logits`.
void CorrectCandidateLogits(const Candidates& candidates, const float* logits,
                            const float* log_expected_count, bool counts_per_row, float fill,
                            const ParallelFor& parallel, float* corrected);

// ranks[b, l] = number of candidates and of other labels of the row that score
// higher than label l: logits [batch, num_candidates], true_logits and ranks
// [batch, num_labels]. Equal labels go by their slot; a candidate equal to a
// label does not count. Padded slots and NaN scores rank last:
// num_candidates + num_labels. Reads `candidates.labels`, not `candidates.ids`.
void CandidateRanks(const Candidates& candidates, const float* logits, const float* true_logits,
                    const ParallelFor& parallel, int64_t* ranks);

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_CANDIDATES_H_
