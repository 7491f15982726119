// Operations on the logits of the candidates of a sampled loss, on the GPU: the functions of
// core/candidates/candidates.h and core/candidates/candidate_softmax.h, with the same types.
//
// All pointers are to device memory. Bound by memory: the logits are read once, or by
// CandidateRanks once per four labels of an example. Ids are only compared and never used as
// indices, so invalid ids are safe.

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

// shifted [batch, num_candidates] = logits + offsets, and `fill` at accidental hits. `shifted`
// may be the same array as `logits`.
Status ShiftCandidateLogits(const Candidates& candidates, const float* logits,
                            const Offsets& offsets, float fill, float* shifted, Stream stream);

// log_partition [batch]: the lowest float for an example without candidates.
Status CandidateLogPartition(const Candidates& candidates, const float* logits,
                             const Offsets& offsets, float* log_partition, Stream stream);

// The bytes of scratch that CandidateLogPartitionGradient needs for its column sums.
int64_t ColumnSumsScratchBytes(int64_t batch, int64_t num_candidates);

// d_logits [batch, num_candidates], 0 at accidental hits. column_sums [num_candidates]: the
// sums of d_logits over the batch; may be null. Scratch is used only for column sums.
// `d_logits` may be the same array as `logits`.
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
