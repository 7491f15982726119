#include "custom_ops/core/candidates/candidates.h"

#include "custom_ops/core/candidates/accidental_hits.h"

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

int64_t RankOf(const Candidates& in, const float* logits, const int64_t* labels,
               const float* scores, int64_t l) {
  const float score = scores[l];
  if (labels[l] < 0 || score != score) return in.num_candidates + in.num_labels;
  int32_t above = 0;
  for (int64_t i = 0; i < in.num_candidates; ++i) above += logits[i] > score;
  return above + LabelsAbove(labels, scores, in.num_labels, l);
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

void CandidateRanks(const Candidates& in, const float* logits, const float* true_logits,
                    const ParallelFor& parallel, int64_t* ranks) {
  const int64_t cost = in.num_labels * (in.num_candidates / 4 + in.num_labels);
  parallel(in.batch, cost, [&](int64_t begin, int64_t end) {
    for (int64_t example = begin; example < end; ++example) {
      const int64_t start = example * in.num_labels;
      for (int64_t l = 0; l < in.num_labels; ++l) {
        ranks[start + l] = RankOf(in, logits + example * in.num_candidates, in.labels + start,
                                  true_logits + start, l);
      }
    }
  });
}

}  // namespace largeout
