#include "custom_ops/core/candidates/candidates.h"

#include "custom_ops/core/candidates/accidental_hits.h"
#include "custom_ops/core/candidates/candidates_simd.h"
#include "custom_ops/core/candidates/example_buffer.h"

namespace largeout {
namespace {

// Calls prepare(example), then fills the accidental hits of the example, for all examples.
template <class Prepare>
void ForEachExampleFill(const Candidates& in, float fill, const ParallelFor& parallel,
                        float* values, const Prepare& prepare) {
  const AccidentalHits hits(in);
  parallel(in.batch, in.num_candidates + 10 * in.num_labels, [&](int64_t begin, int64_t end) {
    PositionsOfIds scratch;
    for (int64_t example = begin; example < end; ++example) {
      prepare(example);
      hits.Fill(example, fill, &scratch, values + example * in.num_candidates);
    }
  });
}

// The rank of label `l` of an example. values: its shifted logits.
int64_t RankOf(const RankedLabels& in, int64_t example, int64_t l, const float* values,
               int64_t num_candidates) {
  const int64_t* ids = in.ids + example * in.num_labels;
  const float* scores = in.logits + example * in.num_labels;
  if (ids[l] < 0 || scores[l] != scores[l]) return num_candidates + in.num_labels;
  int64_t above;
  LARGEOUT_SIMD_DISPATCH(CountAbove, values, num_candidates, scores[l], &above);
  return above + LabelsAbove(ids, scores, in.num_labels, l);
}

}  // namespace

void FillAccidentalHits(const Candidates& in, float fill, const ParallelFor& parallel,
                        float* values) {
  ForEachExampleFill(in, fill, parallel, values, [](int64_t) {});
}

void ShiftCandidateLogits(const Candidates& in, const float* logits, const Offsets& offsets,
                          float fill, const ParallelFor& parallel, float* shifted) {
  ForEachExampleFill(in, fill, parallel, shifted, [&](int64_t example) {
    const int64_t start = example * in.num_candidates;
    const float* offset = offsets.Row(example, in.num_candidates);
    for (int64_t i = 0; i < in.num_candidates; ++i) {
      shifted[start + i] = logits[start + i] + offset[i];
    }
  });
}

void CandidateRanks(const Candidates& in, const float* logits, const Offsets& offsets,
                    const RankedLabels& labels, const ParallelFor& parallel, int64_t* ranks) {
  const AccidentalHits hits(in);
  const int64_t size = in.num_candidates;
  const int64_t cost = size / 2 + labels.num_labels * (size / 8 + labels.num_labels);
  parallel(in.batch, cost, [&](int64_t begin, int64_t end) {
    ExampleBuffer buffer(in, hits);
    for (int64_t example = begin; example < end; ++example) {
      const float* values = buffer.Fill(example, logits, offsets);
      for (int64_t l = 0; l < labels.num_labels; ++l) {
        ranks[example * labels.num_labels + l] = RankOf(labels, example, l, values, size);
      }
    }
  });
}

}  // namespace largeout
