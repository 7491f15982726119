// Logits of classes that each example chooses: <w_id, h_b> + b_id for ids [batch, per_row],
// without the [batch, per_row, dim] rows; and rows of classes that the whole batch shares. The
// gradient has one row for each distinct class of both.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_ROWS_ROW_DOTS_H_
#define LARGEOUT_CUSTOM_OPS_CORE_ROWS_ROW_DOTS_H_

#include <cstdint>

#include "custom_ops/core/base/parallel.h"
#include "custom_ops/core/class_scan/class_scan_types.h"
#include "custom_ops/core/rows/row_merge.h"

namespace largeout {

// The classes of each example. -1 is padding.
struct OwnClasses {
  const int64_t* ids;  // [batch, per_row]
  int64_t batch;
  int64_t per_row;

  int64_t size() const { return batch * per_row; }
};

// The classes that all examples share.
struct SharedClasses {
  const int64_t* ids;
  int64_t size;
};

// In all functions, features are [batch, dim]. REQUIRES: own ids in [-1, num_classes), shared
// ids in [0, num_classes), and fewer than 2^31 of both.

// logits [batch, per_row]: the lowest float where the id is -1.
void RowDots(const ClassMatrix& matrix, const float* features, const OwnClasses& own,
             const ParallelFor& parallel, float* logits);

// rows [shared.size, dim] and, if the matrix has them, biases [shared.size].
void GatherRows(const ClassMatrix& matrix, const SharedClasses& shared,
                const ParallelFor& parallel, float* rows, float* biases);

// d_features[b] = sum over i of d_logits[b, i] * w_id(b, i).
void RowDotsFeatureGradient(const ClassMatrix& matrix, const OwnClasses& own,
                            const float* d_logits, const ParallelFor& parallel,
                            float* d_features);

// The distinct classes of both, without padding. Positions below own.size() are positions of
// own classes; the other positions, minus own.size(), are positions of shared classes.
MergedRows MergeClasses(const OwnClasses& own, const SharedClasses& shared,
                        const ParallelFor& parallel);

// The gradients of the logits of own classes and of the rows of shared classes.
struct RowDotsGradients {
  const float* features;         // [batch, dim]
  const float* d_logits;         // [batch, per_row]
  const float* d_shared_rows;    // [shared.size, dim]
  const float* d_shared_biases;  // [shared.size], or null if there is no bias
};

// d_rows[s] = sum of d_logits[b, i] * features[b] over the positions (b, i) of segment s, plus
// its shared rows. d_biases[s], if there are biases, is the same sum without the features. The
// sums are in the order of row_runs.h and do not depend on the threads.
void RowDotsRowGradient(const MergedRows& merged, const RowDotsGradients& gradients,
                        const OwnClasses& own, int64_t dim, const ParallelFor& parallel,
                        float* d_rows, float* d_biases);

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_ROWS_ROW_DOTS_H_
