// The shifted logits of one example at a time, so that no matrix of them is stored.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_CANDIDATES_EXAMPLE_BUFFER_H_
#define LARGEOUT_CUSTOM_OPS_CORE_CANDIDATES_EXAMPLE_BUFFER_H_

#include <cstdint>
#include <limits>
#include <vector>

#include "custom_ops/core/candidates/accidental_hits.h"
#include "custom_ops/core/candidates/candidates.h"
#include "custom_ops/core/candidates/candidates_simd.h"

namespace largeout {

// Memory of one thread, padded as candidates_simd.h expects.
class ExampleBuffer {
 public:
  // Keeps references to both.
  ExampleBuffer(const Candidates& candidates, const AccidentalHits& hits)
      : in_(candidates),
        hits_(hits),
        values_(candidates.num_candidates + kBufferPadding, kPaddingValue) {}

  // Returns logits + offsets of the example, -inf at accidental hits, until the next call.
  // logits: [batch, num_candidates].
  const float* Fill(int64_t example, const float* logits, const Offsets& offsets) {
    const float* from = logits + example * in_.num_candidates;
    const float* offset = offsets.Row(example, in_.num_candidates);
    LARGEOUT_SIMD_DISPATCH(AddOffsets, from, offset, in_.num_candidates, values_.data());
    hits_.Fill(example, -std::numeric_limits<float>::infinity(), &scratch_, values_.data());
    return values_.data();
  }

 private:
  const Candidates& in_;
  const AccidentalHits& hits_;
  PositionsOfIds scratch_;
  std::vector<float> values_;
};

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_CANDIDATES_EXAMPLE_BUFFER_H_
