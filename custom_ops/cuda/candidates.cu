#include "custom_ops/core/rounding.h"
#include "custom_ops/cuda/candidates.h"
#include "custom_ops/cuda/candidates_body.h"
#include "custom_ops/cuda/launch.cuh"
#include "custom_ops/cuda/memory.h"

namespace largeout {
namespace cuda {
namespace {

template <class Body>
Status Launch(int64_t blocks, const Body& body, Stream stream) {
  return ForEachBlock(blocks, kCandidateThreads, Body::kSharedBytes, body, stream);
}

int64_t NumParts(int64_t batch) { return CeilDiv(batch, kRowsPerPart); }

Status SumColumns(const Candidates& candidates, const float* values, void* scratch, float* sums,
                  Stream stream) {
  const int64_t columns = candidates.num_candidates, num_parts = NumParts(candidates.batch);
  float* const parts = Scratch(scratch).Take<float>(num_parts * columns);
  const Status status = ForEach(
      num_parts * columns, ColumnPartsBody{values, candidates.batch, columns, parts}, stream);
  if (status != kOk) return status;
  return ForEach(columns, ColumnSumsBody{parts, num_parts, columns, sums}, stream);
}

}  // namespace

Status FillAccidentalHits(const Candidates& candidates, float fill, float* values,
                          Stream stream) {
  return Launch(candidates.batch, FillHitsBody{candidates, fill, values}, stream);
}

Status ShiftCandidateLogits(const Candidates& candidates, const float* logits,
                            const Offsets& offsets, float fill, float* shifted, Stream stream) {
  const ShiftedLogits from{logits, offsets, candidates.num_candidates};
  return Launch(candidates.batch, ShiftBody{candidates, from, fill, shifted}, stream);
}

Status CandidateLogPartition(const Candidates& candidates, const float* logits,
                             const Offsets& offsets, float* log_partition, Stream stream) {
  const ShiftedLogits from{logits, offsets, candidates.num_candidates};
  return Launch(candidates.batch, CandidateLogPartitionBody{candidates, from, log_partition},
                stream);
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
  const Status status =
      Launch(candidates.batch,
             CandidateGradientBody{candidates, from, log_partition, d_log_partition, d_logits},
             stream);
  if (status != kOk || column_sums == nullptr) return status;
  return SumColumns(candidates, d_logits, scratch, column_sums, stream);
}

Status CandidateRanks(const Candidates& candidates, const float* logits,
                      const float* true_logits, int64_t* ranks, Stream stream) {
  return Launch(candidates.batch * candidates.num_labels,
                CandidateRanksBody{candidates, logits, true_logits, ranks}, stream);
}

}  // namespace cuda
}  // namespace largeout
