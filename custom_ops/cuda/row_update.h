// Optimizer steps that read and write only the rows that have a gradient, and sums of gradients
// of equal ids, on the GPU: the functions of core/optimizers/row_update.h.
//
// All pointers, including those to the hyperparameters, are to device memory, so the host need
// not wait for a learning rate that the GPU computes.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_ROW_UPDATE_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_ROW_UPDATE_H_

#include <cstdint>

#include "custom_ops/cuda/row_merge.h"
#include "custom_ops/cuda/stream.h"

namespace largeout {
namespace cuda {

// The members are those of AdamArguments etc. in core/optimizers/row_update_rules.h, which also
// has the formulas. Scalars are passed as pointers.
struct AdamStep {
  float* variable;      // [num_rows, dim]
  float* momentum;      // [num_rows, dim] or null
  float* velocity;      // [num_rows, dim]
  int64_t* last_step;   // [num_rows] or null
  const int64_t* step;  // null if last_step is
  const float* step_size;
  const double* beta_1;
  const double* beta_2;
  const float* epsilon;
  const float* weight_decay;
};

struct AdagradStep {
  float* variable;     // [num_rows, dim]
  float* accumulator;  // [num_rows, dim]
  const float* learning_rate;
  const float* epsilon;
  const float* weight_decay;
};

struct RowwiseAdagradStep {
  float* variable;     // [num_rows, dim]
  float* accumulator;  // [num_rows]
  const float* learning_rate;
  const float* epsilon;
  const float* weight_decay;
};

struct MomentumStep {
  float* variable;  // [num_rows, dim]
  float* momentum;  // [num_rows, dim] or null
  const float* learning_rate;
  const float* decay;
  const float* weight_decay;
  bool nesterov;
};

// values: [merged.num_ids, dim]; dim is at most the width that was given to MergeRows. The
// gradients of a row are summed in the same order as in core, so the result is deterministic.
// Ids out of range are skipped, because reporting them to the host would require waiting. Bound
// by memory: each row and slot with a gradient is read and written once.
Status UpdateRows(const MergedRows& merged, const float* values, int64_t dim,
                  const AdamStep& step, Stream stream);
Status UpdateRows(const MergedRows& merged, const float* values, int64_t dim,
                  const AdagradStep& step, Stream stream);
Status UpdateRows(const MergedRows& merged, const float* values, int64_t dim,
                  const RowwiseAdagradStep& step, Stream stream);
Status UpdateRows(const MergedRows& merged, const float* values, int64_t dim,
                  const MomentumStep& step, Stream stream);

// Row s of `sums` [merged.num_ids, dim] becomes the sum of segment s, and ids[s] its id. The
// rows after the last segment become zeros with id -1. Index: int32_t or int64_t.
template <class Index>
Status SumRows(const MergedRows& merged, const float* values, int64_t dim, float* sums,
               Index* ids, Stream stream);

}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_ROW_UPDATE_H_
