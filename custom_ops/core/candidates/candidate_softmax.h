// The log of the partition function over the candidates of an example, and its gradient,
// without a second matrix of the size of the logits.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_CANDIDATES_CANDIDATE_SOFTMAX_H_
#define LARGEOUT_CUSTOM_OPS_CORE_CANDIDATES_CANDIDATE_SOFTMAX_H_

#include "custom_ops/core/base/parallel.h"
#include "custom_ops/core/candidates/candidates.h"

namespace largeout {

// log_partition[b] = log sum_i exp(logits[b, i] + offset of i), over the candidates i of
// example b that are not accidental hits. About -3.4e38 if no candidate above -inf remains.
void CandidateLogPartition(const Candidates& candidates, const float* logits,
                           const Offsets& offsets, const ParallelFor& parallel,
                           float* log_partition);

// d_logits[b, i] = d_log_partition[b] * exp(logits[b, i] + offset of i - log_partition[b]), and
// 0 at accidental hits. column_sums[i] = sum_b d_logits[b, i], in an order that does not depend
// on the threads; may be null. `d_logits` may be the same array as `logits`.
void CandidateLogPartitionGradient(const Candidates& candidates, const float* logits,
                                   const Offsets& offsets, const float* log_partition,
                                   const float* d_log_partition, const ParallelFor& parallel,
                                   float* d_logits, float* column_sums);

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_CANDIDATES_CANDIDATE_SOFTMAX_H_
