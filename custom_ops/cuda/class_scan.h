// Exact passes over all classes on the GPU that never hold [batch, num_classes]: the functions
// of core/class_scan/class_scan.h, with the same types.
//
// Logits are computed in float32, one tile at a time, and consumed in the registers of a block.
// Results do not depend on the order of the blocks. All pointers are to device memory.
//
// The GPU checks the labels. -1 is padding. The logit of any other id outside [0, num_classes)
// is NaN, and no memory outside the matrix is read. If `labels` has logits, an id may be any
// class, also of another shard; negative ids are padding.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_CLASS_SCAN_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_CLASS_SCAN_H_

#include <cstdint>

#include "custom_ops/core/class_scan/class_scan_types.h"
#include "custom_ops/cuda/stream.h"

namespace largeout {
namespace cuda {

// The bytes of scratch of ClassStatistics: O(batch * (width + blocks)).
int64_t ClassStatisticsScratchBytes(int64_t batch, int64_t num_classes, int64_t width);

// log_partition [batch], true_logits and ranks [batch, width], as in core. Takes 2 batch
// num_classes dim operations. Small batches are bound by reading the matrix.
Status ClassStatistics(const ClassMatrix& matrix, const Features& features,
                       const Labels& labels, void* scratch, float* log_partition,
                       float* true_logits, int64_t* ranks, Stream stream);

// true_logits [batch, width], as in core, with the same bits as those of ClassStatistics.
Status LabelLogits(const ClassMatrix& matrix, const Features& features, const Labels& labels,
                   float* true_logits, Stream stream);

// The largest k of ClassTopK, which sorts in shared memory.
inline constexpr int64_t kMostTopK = 2048;

// The bytes of scratch of ClassTopK: O(batch * blocks * k).
int64_t ClassTopKScratchBytes(int64_t batch, int64_t num_classes, int64_t k);

// scores, ids [batch, k], as in core. Lost logits (core/class_scan/lost_logits.h), for example
// all logits of an example with features that are not finite, give NaN and -1. REQUIRES: 1 <= k
// <= min(num_classes, kMostTopK). Takes the operations of ClassStatistics, plus O(k) per
// example and block each time that its list changes.
Status ClassTopK(const ClassMatrix& matrix, const Features& features, int64_t k, void* scratch,
                 float* scores, int64_t* ids, Stream stream);

// The weights of a gradient: of the log partition of each example, and of the logit of each
// label.
struct ScanWeights {
  const float* log_partition;  // [batch]
  const float* weights;        // [batch]
  const float* label_weights;  // [batch, width]
};

// The bytes of scratch of ClassSoftmaxGradient: O((batch + 65536) * dim).
int64_t ClassSoftmaxGradientScratchBytes(int64_t batch, int64_t num_classes, int64_t dim);

// d_features [batch, dim], d_embeddings [num_classes, dim] and, if not null, d_bias
// [num_classes], as in core. Labels outside the classes have no gradient. Takes 8 batch
// num_classes dim operations: probabilities are computed twice, once for the classes and once
// for the features, so that no atomic additions are needed.
Status ClassSoftmaxGradient(const ClassMatrix& matrix, const Features& features,
                            const Labels& labels, const ScanWeights& weights, void* scratch,
                            float* d_features, float* d_embeddings, float* d_bias,
                            Stream stream);

}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_CLASS_SCAN_H_
