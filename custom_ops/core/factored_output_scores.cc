#include <algorithm>
#include <vector>

#include "custom_ops/core/dense_product.h"
#include "custom_ops/core/factored_output.h"
#include "custom_ops/core/padded_matrix.h"

namespace largeout {
namespace {

template <class Number>
double Dot(const Number* a, const double* b, int64_t size) {
  constexpr int64_t kSums = 8;  // so that additions need not wait for each other
  double sums[kSums] = {};
  int64_t i = 0;
  for (; i + kSums <= size; i += kSums) {
    for (int64_t k = 0; k < kSums; ++k) sums[k] += a[i + k] * b[i + k];
  }
  for (int64_t k = 0; i + k < size; ++k) sums[k] += a[i + k] * b[i + k];
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) +
         ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

// products [batch, width]: the matrix [width, width] times each column.
void MultiplyColumns(const double* matrix, const PaddedMatrix& columns,
                     const ParallelFor& parallel, PaddedMatrix* out, double* products) {
  const int64_t width = columns.rows(), batch = columns.width();
  out->Fill(0, parallel);
  AddProductInBlocks({matrix, width, 1}, columns, out, parallel);
  TransposeInto(out->data(), out->stride(), width, batch, products, width, parallel);
}

}  // namespace

template <class Number>
void ScoreFactoredOutput(const FactoredState<Number>& state, const FactoredBatch& batch,
                         const ParallelFor& parallel, const FactoredScores& scores) {
  const int64_t width = state.width;
  Arena arena(2 * PaddedMatrix::Size(width, batch.batch));
  PaddedMatrix columns(width, batch.batch, &arena), out(width, batch.batch, &arena);
  TransposeInto(batch.features, width, batch.batch, width, columns.data(), columns.stride(),
                parallel);
  MultiplyColumns(state.gram, columns, parallel, &out, scores.gram_features);
  MultiplyColumns(state.mixing, columns, parallel, &out, scores.mixed_features);
  parallel(batch.batch, (batch.num_targets + 3) * width, [&](int64_t begin, int64_t end) {
    for (int64_t j = begin; j < end; ++j) {
      const double* features = batch.features + j * width;
      const double* mixed = scores.mixed_features + j * width;
      scores.q[j] = Dot(features, scores.gram_features + j * width, width);
      scores.s[j] = Dot(features, state.total, width);
      const double offset = Dot(features, state.offset, width);
      for (int64_t i = j * batch.num_targets; i < (j + 1) * batch.num_targets; ++i) {
        const int64_t id = batch.ids[i];
        scores.a[i] = id < 0 ? 0 : Dot(state.vectors + id * width, mixed, width) + offset;
      }
    }
  });
}

template void ScoreFactoredOutput(const FactoredState<float>&, const FactoredBatch&,
                                  const ParallelFor&, const FactoredScores&);
template void ScoreFactoredOutput(const FactoredState<double>&, const FactoredBatch&,
                                  const ParallelFor&, const FactoredScores&);

}  // namespace largeout
