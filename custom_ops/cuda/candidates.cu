#include "custom_ops/core/base/rounding.h"
#include "custom_ops/cuda/candidate_softmax_body.h"
#include "custom_ops/cuda/candidates.h"
#include "custom_ops/cuda/candidates_body.h"
#include "custom_ops/cuda/launch.cuh"
#include "custom_ops/cuda/memory.h"

namespace largeout {
namespace cuda {
namespace {

// Launches Body<true> if all examples have the same ids and offsets, else Body<false>.
template <template <bool> class Body, class... Arguments>
Status Launch(bool same, int64_t blocks, Stream stream, const Arguments&... arguments) {
  if (same) {
    return ForEachBlock(blocks, kCandidateThreads, Body<true>::kSharedBytes,
                        Body<true>{arguments...}, stream);
  }
  return ForEachBlock(blocks, kCandidateThreads, Body<false>::kSharedBytes,
                      Body<false>{arguments...}, stream);
}

bool Same(const Candidates& candidates, const Offsets& offsets) {
  return candidates.shared && !offsets.per_row;
}

int64_t NumParts(int64_t batch) { return CeilDiv(batch, kRowsPerPart); }

}  // namespace

Status FillAccidentalHits(const Candidates& candidates, float fill, float* values,
                          Stream stream) {
  return Launch<FillHitsBody>(candidates.shared, NumTiles(candidates, kRowsTogether), stream,
                              candidates, fill, values);
}

Status ShiftCandidateLogits(const Candidates& candidates, const float* logits,
                            const Offsets& offsets, float fill, float* shifted, Stream stream) {
  const ShiftedLogits from{logits, offsets, candidates.num_candidates};
  return Launch<ShiftBody>(Same(candidates, offsets), NumTiles(candidates, kRowsTogether),
                           stream, candidates, from, fill, shifted);
}

Status CandidateLogPartition(const Candidates& candidates, const float* logits,
                             const Offsets& offsets, float* log_partition, Stream stream) {
  const ShiftedLogits from{logits, offsets, candidates.num_candidates};
  using Body = CandidateLogPartitionBody<true>;
  return Launch<CandidateLogPartitionBody>(Same(candidates, offsets),
                                           CeilDiv(candidates.batch, Body::kRows), stream,
                                           candidates, from, log_partition);
}

int64_t ColumnSumsScratchBytes(int64_t batch, int64_t num_candidates) {
  Scratch counter(nullptr);
  counter.Take<float>(NumParts(batch) * num_candidates);
  return counter.bytes();
}

Status CandidateLogPartitionGradient(const Candidates& candidates, const float* logits,
                                     const Offsets& offsets, const float* log_partition,
                                     const float* d_log_partition, void* scratch,
                                     float* d_logits, float* column_sums, Stream stream) {
  const ShiftedLogits from{logits, offsets, candidates.num_candidates};
  const int64_t columns = candidates.num_candidates, num_parts = NumParts(candidates.batch);
  float* const parts =
      column_sums == nullptr ? nullptr : Scratch(scratch).Take<float>(num_parts * columns);
  const Status status = Launch<CandidateGradientBody>(
      Same(candidates, offsets), NumTiles(candidates, kRowsPerPart), stream, candidates, from,
      log_partition, d_log_partition, d_logits, parts);
  if (status != kOk || column_sums == nullptr) return status;
  return ForEach(columns, ColumnSumsBody{parts, num_parts, columns, column_sums}, stream);
}

Status CandidateRanks(const Candidates& candidates, const float* logits,
                      const float* true_logits, int64_t* ranks, Stream stream) {
  if (candidates.num_labels == 0) return kOk;
  return ForEachBlock(candidates.batch, kCandidateThreads, CandidateRanksBody::kSharedBytes,
                      CandidateRanksBody{candidates, logits, true_logits, ranks}, stream);
}

}  // namespace cuda
}  // namespace largeout
