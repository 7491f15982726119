// Exact passes over all classes that never hold [batch, num_classes]. Logits o_c = <w_c, h> +
// b_c are computed one tile at a time and consumed in registers.
//
// The bits of the results do not depend on the number of threads: classes are divided into
// shards that depend only on the sizes, and the shards are combined in order. Rounding may
// differ between instruction sets. All matrices are row-major.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_CLASS_SCAN_CLASS_SCAN_H_
#define LARGEOUT_CUSTOM_OPS_CORE_CLASS_SCAN_CLASS_SCAN_H_

#include <cstdint>

#include "custom_ops/core/base/parallel.h"
#include "custom_ops/core/class_scan/class_scan_types.h"
#include "custom_ops/core/class_scan/packed_rows_simd.h"

namespace largeout {

// log_partition [batch]: the log of the sum of exp(o_c); NaN if a logit is NaN.
// true_logits [batch, width]: 0 where there is no label. Not written, and may be null, if
// `labels` has logits.
// ranks [batch, width]: the number of classes c other than y with o_c > o_y, or with o_c = o_y
// and c < y; num_classes where there is no label or its logit is NaN or -inf. If `labels` has
// logits, these are used as o_y.
void ClassStatistics(const ClassMatrix& matrix, const Features& features, const Labels& labels,
                     const ParallelFor& parallel, float* log_partition, float* true_logits,
                     int64_t* ranks, ProductNumbers numbers = ProductNumbers::kFloat32);

// The logits of labels without a pass over the classes. They have the same bits as those of
// ClassStatistics for a batch of the same size. true_logits [batch, width]: 0 where there is no
// label. REQUIRES: `labels` has no logits.
void LabelLogits(const ClassMatrix& matrix, const Features& features, const Labels& labels,
                 const ParallelFor& parallel, float* true_logits,
                 ProductNumbers numbers = ProductNumbers::kFloat32);

// scores, ids [batch, k]: the k highest logits in decreasing order, ties by increasing id. NaN
// ranks below everything. REQUIRES: 1 <= k <= num_classes. `packed_rows` is null, or all
// current rows of the matrix with bounds (PackAllRows): the result is the same, in a quarter to
// a half of the time. Without `packed_rows`, the rows are packed during the pass if the batch
// is large enough for this to pay. If the embeddings of the matrix are null, the classes are
// the packed rows and their biases: `packed_rows` is then not null, and the bias of the matrix
// is not read.
void ClassTopK(const ClassMatrix& matrix, const Features& features, int64_t k,
               const ParallelFor& parallel, float* scores, int64_t* ids,
               const PackedRows* packed_rows = nullptr);

// Gradient of sum_b weights_b * log_partition_b + sum_bl label_weights_bl * o_{y_bl}, from
// recomputed probabilities exp(o - log_partition). Examples of weight 0 are ignored, whatever
// numbers they contain. label_weights [batch, width]. Writes all of d_features [batch, dim],
// d_embeddings [num_classes, dim] and, if not null, d_bias [num_classes].
void ClassSoftmaxGradient(const ClassMatrix& matrix, const Features& features,
                          const float* log_partition, const float* weights,
                          const Labels& labels, const float* label_weights,
                          const ParallelFor& parallel, float* d_features, float* d_embeddings,
                          float* d_bias, ProductNumbers numbers = ProductNumbers::kFloat32);

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_CLASS_SCAN_CLASS_SCAN_H_
