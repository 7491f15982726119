// Exact passes over all classes on the GPU that never hold [batch, num_classes]: what
// core/class_scan/class_scan.h does, for the same types.
//
// Logits are made a tile at a time in float32, in the registers of a block, and used up
// there. Results do not depend on the order of the blocks. All pointers are to device memory.
//
// The GPU looks at the labels itself: -1 stands for no label, any other id outside
// [0, num_classes) gives NaN where its logit would stand, and touches no other row. Labels with
// logits are any classes; a negative id stands for no label.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_CLASS_SCAN_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_CLASS_SCAN_H_

#include <cstdint>

#include "custom_ops/core/class_scan/class_scan_types.h"
#include "custom_ops/cuda/stream.h"

namespace largeout {
namespace cuda {

// Scratch of ClassStatistics: O(batch * (width + blocks)).
int64_t ClassStatisticsScratchBytes(int64_t batch, int64_t num_classes, int64_t width);

// log_partition [batch], true_logits and ranks [batch, width], as in core. 2 batch
// num_classes dim operations; for small batches, the bytes of the matrix.
Status ClassStatistics(const ClassMatrix& matrix, const Features& features,
                       const Labels& labels, void* scratch, float* log_partition,
                       float* true_logits, int64_t* ranks, Stream stream);

// true_logits [batch, width], as in core, to the bit as ClassStatistics has them.
Status LabelLogits(const ClassMatrix& matrix, const Features& features, const Labels& labels,
                   float* true_logits, Stream stream);

// The largest k of ClassTopK: what it sorts is in shared memory.
inline constexpr int64_t kMostTopK = 2048;

// Scratch of ClassTopK: O(batch * blocks * k).
int64_t ClassTopKScratchBytes(int64_t batch, int64_t num_classes, int64_t k);

// scores, ids [batch, k], as in core; NaN and -1 for lost logits
// (core/class_scan/lost_logits.h), such as all of a row of features that are not finite.
// REQUIRES: 1 <= k <= min(num_classes, kMostTopK). The operations of ClassStatistics, and O(k)
// a row and block where the best change.
Status ClassTopK(const ClassMatrix& matrix, const Features& features, int64_t k, void* scratch,
                 float* scores, int64_t* ids, Stream stream);

// Weights of a gradient: of the log partition of each row, and of the logit of each label.
struct ScanWeights {
  const float* log_partition;  // [batch]
  const float* weights;        // [batch]
  const float* label_weights;  // [batch, width]
};

// Scratch of ClassSoftmaxGradient: O((batch + 65536) * dim).
int64_t ClassSoftmaxGradientScratchBytes(int64_t batch, int64_t num_classes, int64_t dim);

// d_features [batch, dim], d_embeddings [num_classes, dim] and, if not null, d_bias
// [num_classes], as in core; labels outside the classes have no gradient. 8 batch
// num_classes dim operations: probabilities are made once for the classes and once for
// the features, so that nothing is added up by atomic operations.
Status ClassSoftmaxGradient(const ClassMatrix& matrix, const Features& features,
                            const Labels& labels, const ScanWeights& weights, void* scratch,
                            float* d_features, float* d_embeddings, float* d_bias,
                            Stream stream);

}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_CLASS_SCAN_H_
