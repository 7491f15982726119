#include "custom_ops/core/candidates/candidate_softmax.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "custom_ops/core/base/rounding.h"
#include "custom_ops/core/candidates/accidental_hits.h"
#include "custom_ops/core/candidates/candidates_simd.h"
#include "custom_ops/core/candidates/example_buffer.h"

namespace largeout {
namespace {

// Examples are summed in order within a block, and the blocks in order, so that the sums do not
// depend on the threads.
constexpr int64_t kExamplesPerBlock = 32;

}  // namespace

void CandidateLogPartition(const Candidates& in, const float* logits, const Offsets& offsets,
                           const ParallelFor& parallel, float* log_partition) {
  const AccidentalHits hits(in);
  parallel(in.batch, 3 * in.num_candidates, [&](int64_t begin, int64_t end) {
    ExampleBuffer buffer(in, hits);
    for (int64_t example = begin; example < end; ++example) {
      const float* values = buffer.Fill(example, logits, offsets);
      float max, sum;
      LARGEOUT_SIMD_DISPATCH(MaxAndSumExp, values, in.num_candidates,
                             logits + (example + 1) * in.num_candidates, &max, &sum);
      log_partition[example] = sum == 0 ? max : max + std::log(sum);
    }
  });
}

void CandidateLogPartitionGradient(const Candidates& in, const float* logits,
                                   const Offsets& offsets, const float* log_partition,
                                   const float* d_log_partition, const ParallelFor& parallel,
                                   float* d_logits, float* column_sums) {
  const AccidentalHits hits(in);
  const int64_t size = in.num_candidates;
  const int64_t blocks = CeilDiv(in.batch, kExamplesPerBlock);
  std::vector<float> sums(blocks * size, 0.0f);
  parallel(blocks, 4 * kExamplesPerBlock * size, [&](int64_t begin, int64_t end) {
    ExampleBuffer buffer(in, hits);
    for (int64_t example = begin * kExamplesPerBlock;
         example < std::min(in.batch, end * kExamplesPerBlock); ++example) {
      const float* values = buffer.Fill(example, logits, offsets);
      LARGEOUT_SIMD_DISPATCH(ScaledExp, values, size, logits + (example + 1) * size,
                             log_partition[example], d_log_partition[example],
                             d_logits + example * size,
                             sums.data() + example / kExamplesPerBlock * size);
    }
  });
  if (column_sums == nullptr) return;
  std::fill(column_sums, column_sums + size, 0.0f);
  for (int64_t block = 0; block < blocks; ++block) {
    for (int64_t i = 0; i < size; ++i) column_sums[i] += sums[block * size + i];
  }
}

}  // namespace largeout
