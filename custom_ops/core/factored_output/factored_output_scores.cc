#include <algorithm>
#include <vector>

#include "custom_ops/core/factored_output/factored_output.h"
#include "custom_ops/core/factored_output/factored_output_products.h"
#include "custom_ops/core/linear_algebra/row_arithmetic.h"

namespace largeout {
// Q h is always computed in double, because the variance of the logits is the difference of
// q / N and the square of their mean.
template <class Number>
void ScoreFactoredOutput(const FactoredState<Number>& state, const FactoredBatch& batch,
                         const ParallelFor& parallel, const FactoredScores& scores) {
  const int64_t width = state.width;
  std::fill_n(scores.gram_features, batch.batch * width, 0.0);
  std::fill_n(scores.mixed_features, batch.batch * width, 0.0);
  const DenseRows rows = {batch.features, batch.batch, width, width};
  AddTimesSquare<double>(rows, state.gram, Square::kAsItIs, parallel, scores.gram_features,
                         width);
  AddTimesSquare<Number>(rows, state.mixing, Square::kTransposed, parallel,
                         scores.mixed_features, width);
  parallel(batch.batch, (batch.num_targets + 3) * width, [&](int64_t begin, int64_t end) {
    std::vector<double> row(width);
    const int64_t first = begin * batch.num_targets, last = end * batch.num_targets;
    for (int64_t j = begin; j < end; ++j) {
      const double* features = batch.features + j * width;
      const double* mixed = scores.mixed_features + j * width;
      scores.q[j] = Dot(features, scores.gram_features + j * width, width);
      scores.s[j] = Dot(features, state.total, width);
      const double offset = Dot(features, state.offset, width);
      for (int64_t i = j * batch.num_targets; i < (j + 1) * batch.num_targets; ++i) {
        PrefetchRows(state, batch.ids, first, i, last);
        const int64_t id = batch.ids[i];
        scores.a[i] = 0;
        if (id < 0) continue;
        CopyRow(state, id, row.data());
        scores.a[i] = Dot(row.data(), mixed, width) + offset;
      }
    }
  });
}

template void ScoreFactoredOutput(const FactoredState<float>&, const FactoredBatch&,
                                  const ParallelFor&, const FactoredScores&);
template void ScoreFactoredOutput(const FactoredState<double>&, const FactoredBatch&,
                                  const ParallelFor&, const FactoredScores&);

}  // namespace largeout
