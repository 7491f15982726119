#include "custom_ops/cuda/row_sums_launch.cuh"
#include "custom_ops/cuda/row_update.h"
#include "custom_ops/cuda/row_update_body.h"

namespace largeout {
namespace cuda {
namespace {

template <class Rule>
Status Launch(const MergedRows& merged, const float* values, int64_t dim, const Rule& rule,
              Stream stream) {
  const GradientTerms terms{merged.positions, values, dim};
  return SumRunsAndRows(merged, terms, merged.num_ids, kRowUpdateSharedBytes,
                        UpdateRowsBody<Rule>{merged, terms, rule}, stream);
}

}  // namespace

Status UpdateRows(const MergedRows& merged, const float* values, int64_t dim,
                  const AdamStep& step, Stream stream) {
  return Launch(merged, values, dim, AdamRule{step, {}, 0, 0}, stream);
}

Status UpdateRows(const MergedRows& merged, const float* values, int64_t dim,
                  const AdagradStep& step, Stream stream) {
  return Launch(merged, values, dim, AdagradRule{step, {}}, stream);
}

Status UpdateRows(const MergedRows& merged, const float* values, int64_t dim,
                  const RowwiseAdagradStep& step, Stream stream) {
  return Launch(merged, values, dim, RowwiseAdagradRule{step, {}}, stream);
}

Status UpdateRows(const MergedRows& merged, const float* values, int64_t dim,
                  const MomentumStep& step, Stream stream) {
  return Launch(merged, values, dim, MomentumRule{step, {}}, stream);
}

template <class Index>
Status SumRows(const MergedRows& merged, const float* values, int64_t dim, float* sums,
               Index* ids, Stream stream) {
  const GradientTerms terms{merged.positions, values, dim};
  const WriteSumsBody<GradientTerms, Index> body{merged, terms, merged.num_ids, dim,
                                                 ids,    sums,  nullptr};
  return SumRunsAndRows(merged, terms, merged.num_ids, 0, body, stream);
}

template Status SumRows(const MergedRows&, const float*, int64_t, float*, int32_t*, Stream);
template Status SumRows(const MergedRows&, const float*, int64_t, float*, int64_t*, Stream);

}  // namespace cuda
}  // namespace largeout
