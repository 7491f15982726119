#include <limits>

#include "custom_ops/cuda/candidates.h"
#include "custom_ops/kernels/candidate_ops.h"
#include "custom_ops/kernels/gpu_context.h"

namespace largeout {
namespace {

using tensorflow::OpKernelContext;
using tensorflow::Tensor;

struct GpuCandidate {
  static absl::Status Copy(OpKernelContext* ctx, const Tensor& from, Tensor* to) {
    return CopyTensor(ctx, from, to);
  }

  static absl::Status FillAccidentalHits(OpKernelContext* ctx, const Candidates& candidates,
                                         float fill, float* values) {
    return FromCuda(cuda::FillAccidentalHits(candidates, fill, values, StreamOf(ctx)));
  }

  static absl::Status ShiftCandidateLogits(OpKernelContext* ctx, const Candidates& candidates,
                                           const float* logits, const Offsets& offsets,
                                           float fill, float* shifted) {
    return FromCuda(
        cuda::ShiftCandidateLogits(candidates, logits, offsets, fill, shifted, StreamOf(ctx)));
  }

  static absl::Status CandidateLogPartition(OpKernelContext* ctx, const Candidates& candidates,
                                            const float* logits, const Offsets& offsets,
                                            float* log_partition) {
    return FromCuda(
        cuda::CandidateLogPartition(candidates, logits, offsets, log_partition, StreamOf(ctx)));
  }

  static absl::Status CandidateLogPartitionGradient(OpKernelContext* ctx,
                                                    const Candidates& candidates,
                                                    const float* logits, const Offsets& offsets,
                                                    const float* log_partition,
                                                    const float* d_log_partition,
                                                    float* d_logits, float* d_offsets) {
    GpuScratch scratch;
    if (d_offsets != nullptr) {
      TF_RETURN_IF_ERROR(scratch.Allocate(
          ctx, cuda::ColumnSumsScratchBytes(candidates.batch, candidates.num_candidates)));
    }
    return FromCuda(cuda::CandidateLogPartitionGradient(
        candidates, logits, offsets, log_partition, d_log_partition, scratch.data(), d_logits,
        d_offsets, StreamOf(ctx)));
  }

  // In two passes, with a matrix of the shifted logits.
  static absl::Status CandidateRanks(OpKernelContext* ctx, const Candidates& candidates,
                                     const float* logits, const Offsets& offsets,
                                     const RankedLabels& labels, int64_t* ranks) {
    const int64_t batch = candidates.batch, size = candidates.num_candidates;
    GpuScratch scratch;
    TF_RETURN_IF_ERROR(scratch.Allocate(ctx, batch * size * sizeof(float)));
    auto* const shifted = static_cast<float*>(scratch.data());
    TF_RETURN_IF_ERROR(ShiftCandidateLogits(ctx, candidates, logits, offsets,
                                            -std::numeric_limits<float>::infinity(), shifted));
    const Candidates ranked = {labels.ids, nullptr, batch, labels.num_labels, size, true};
    return FromCuda(cuda::CandidateRanks(ranked, shifted, labels.logits, ranks, StreamOf(ctx)));
  }
};

LARGEOUT_REGISTER_CANDIDATE_OPS(GpuDeviceType(), GpuCandidate);

}  // namespace
}  // namespace largeout
