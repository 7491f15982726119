#include "custom_ops/kernels/candidate_ops.h"

#include "custom_ops/core/candidates/candidate_softmax.h"
#include "custom_ops/core/candidates/candidates.h"
#include "custom_ops/kernels/intra_op_parallel.h"

namespace largeout {
namespace {

using tensorflow::OpKernelContext;
using tensorflow::Tensor;

struct CpuCandidate {
  static absl::Status Copy(OpKernelContext*, const Tensor& from, Tensor* to) {
    to->flat<float>() = from.flat<float>();
    return absl::OkStatus();
  }

  static absl::Status FillAccidentalHits(OpKernelContext* ctx, const Candidates& candidates,
                                         float fill, float* values) {
    largeout::FillAccidentalHits(candidates, fill, IntraOpParallel(ctx), values);
    return absl::OkStatus();
  }

  static absl::Status ShiftCandidateLogits(OpKernelContext* ctx, const Candidates& candidates,
                                           const float* logits, const Offsets& offsets,
                                           float fill, float* shifted) {
    largeout::ShiftCandidateLogits(candidates, logits, offsets, fill, IntraOpParallel(ctx),
                                   shifted);
    return absl::OkStatus();
  }

  static absl::Status CandidateLogPartition(OpKernelContext* ctx, const Candidates& candidates,
                                            const float* logits, const Offsets& offsets,
                                            float* log_partition) {
    largeout::CandidateLogPartition(candidates, logits, offsets, IntraOpParallel(ctx),
                                    log_partition);
    return absl::OkStatus();
  }

  static absl::Status CandidateLogPartitionGradient(OpKernelContext* ctx,
                                                    const Candidates& candidates,
                                                    const float* logits, const Offsets& offsets,
                                                    const float* log_partition,
                                                    const float* d_log_partition,
                                                    float* d_logits, float* d_offsets) {
    largeout::CandidateLogPartitionGradient(candidates, logits, offsets, log_partition,
                                            d_log_partition, IntraOpParallel(ctx), d_logits,
                                            d_offsets);
    return absl::OkStatus();
  }

  static absl::Status CandidateRanks(OpKernelContext* ctx, const Candidates& candidates,
                                     const float* logits, const Offsets& offsets,
                                     const RankedLabels& labels, int64_t* ranks) {
    largeout::CandidateRanks(candidates, logits, offsets, labels, IntraOpParallel(ctx), ranks);
    return absl::OkStatus();
  }
};

LARGEOUT_REGISTER_CANDIDATE_OPS(tensorflow::DEVICE_CPU, CpuCandidate);

}  // namespace
}  // namespace largeout
