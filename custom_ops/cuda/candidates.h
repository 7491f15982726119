// What a sampled loss does with the logits of its candidates, on the GPU: what
// core/candidates/candidates.h and core/candidates/candidate_softmax.h do, for the same types.
//
// All pointers are to device memory. Bound by bytes: the logits are read once, by ranks once
// for every four labels of a row. Ids are compared, not followed, so none can be out of range.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_CANDIDATES_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_CANDIDATES_H_

#include <cstdint>

#include "custom_ops/core/candidates/candidates.h"
#include "custom_ops/cuda/stream.h"

namespace largeout {
namespace cuda {

// values [batch, num_candidates] = fill at accidental hits.
Status FillAccidentalHits(const Candidates& candidates, float fill, float* values,
                          Stream stream);

// shifted [batch, num_candidates] = logits + offsets, `fill` at accidental hits. `shifted`
// may be `logits`.
Status ShiftCandidateLogits(const Candidates& candidates, const float* logits,
                            const Offsets& offsets, float fill, float* shifted, Stream stream);

// log_partition [batch]: the lowest float where there is no candidate.
Status CandidateLogPartition(const Candidates& candidates, const float* logits,
                             const Offsets& offsets, float* log_partition, Stream stream);

// Scratch of CandidateLogPartitionGradient, for its column sums.
int64_t ColumnSumsScratchBytes(int64_t batch, int64_t num_candidates);

// d_logits [batch, num_candidates], 0 at accidental hits; column_sums [num_candidates], of
// d_logits over the batch, if not null. Scratch is used for column sums only. `d_logits` may be
// `logits`.
Status CandidateLogPartitionGradient(const Candidates& candidates, const float* logits,
                                     const Offsets& offsets, const float* log_partition,
                                     const float* d_log_partition, void* scratch,
                                     float* d_logits, float* column_sums, Stream stream);

// ranks [batch, num_labels]. Reads `candidates.labels`, not `candidates.ids`.
Status CandidateRanks(const Candidates& candidates, const float* logits,
                      const float* true_logits, int64_t* ranks, Stream stream);

}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_CANDIDATES_H_
