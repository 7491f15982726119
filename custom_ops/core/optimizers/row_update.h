// Optimizer steps that read and write only the rows that have a gradient.
//
// Each function sums the gradients of a segment (in the order of row_runs.h, so that the result
// does not depend on the threads) and updates the row of the variable and of its slots in
// place. g is the summed gradient. Weight decay is applied first and is decoupled: w -=
// weight_decay * w.
//
// If `rounded` has rows, they are the variable, in bfloat16: a row is widened to float32,
// updated, and rounded at random. The slots are float32.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_OPTIMIZERS_ROW_UPDATE_H_
#define LARGEOUT_CUSTOM_OPS_CORE_OPTIMIZERS_ROW_UPDATE_H_

#include <cstdint>

#include "custom_ops/core/base/parallel.h"
#include "custom_ops/core/optimizers/row_update_rules.h"
#include "custom_ops/core/rows/row_merge.h"

namespace largeout {

// values: [number of merged ids, dim]. REQUIRES: every id of `merged` is a row of the matrices
// in `arguments`.
void UpdateRows(const MergedRows& merged, const float* values, int64_t dim,
                const AdamArguments& arguments, const ParallelFor& parallel_for,
                const RoundedRows& rounded = {});
void UpdateRows(const MergedRows& merged, const float* values, int64_t dim,
                const AdagradArguments& arguments, const ParallelFor& parallel_for,
                const RoundedRows& rounded = {});
void UpdateRows(const MergedRows& merged, const float* values, int64_t dim,
                const RowwiseAdagradArguments& arguments, const ParallelFor& parallel_for,
                const RoundedRows& rounded = {});
void UpdateRows(const MergedRows& merged, const float* values, int64_t dim,
                const MomentumArguments& arguments, const ParallelFor& parallel_for,
                const RoundedRows& rounded = {});

// Row s of `sums` [merged.size(), dim] becomes the sum of segment s.
void SumRows(const MergedRows& merged, const float* values, int64_t dim, float* sums,
             const ParallelFor& parallel_for);

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_OPTIMIZERS_ROW_UPDATE_H_
