// Draws of classes on the GPU, with the same bits as those of core/sampling/sampling.h and
// core/sampling/alias_table.h, and their expected counts. seed: int64 [2] in device memory.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_SAMPLING_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_SAMPLING_H_

#include <cstdint>

#include "custom_ops/core/sampling/alias_table.h"
#include "custom_ops/cuda/stream.h"

namespace largeout {
namespace cuda {

// The inputs and outputs of a sampler. The count of a true class is 1 if it is -1 (padding),
// and NaN if it is out of range.
struct SampledArrays {
  const int64_t* true_classes;  // [num_true]
  int64_t num_true;
  int64_t num_sampled;
  int64_t* sampled;      // [num_sampled]
  float* true_count;     // [num_true]
  float* sampled_count;  // [num_sampled]
};

// The bytes of scratch of the samplers without replacement: O(num_sampled).
int64_t UniqueSampleScratchBytes(int64_t num_sampled);

// Distributions in closed form (core/sampling/uniform_distribution.h,
// core/sampling/log_uniform_distribution.h). scratch: UniqueSampleScratchBytes if `unique`,
// otherwise not used. REQUIRES: num_classes <= 2^31; num_sampled >= 1; num_sampled <=
// num_classes if `unique`.
Status UniformSample(const SampledArrays& arrays, int64_t num_classes, bool unique,
                     const int64_t* seed, void* scratch, Stream stream);
Status LogUniformSample(const SampledArrays& arrays, int64_t num_classes, bool unique,
                        const int64_t* seed, void* scratch, Stream stream);

// With replacement, from slots [num_classes] and probability [num_classes]. If the table is
// empty or contains an invalid class, a valid class is drawn with a count of NaN.
Status AliasSample(const SampledArrays& arrays, const AliasSlot* slots,
                   const float* probability, int64_t num_classes, const int64_t* seed,
                   Stream stream);

// Without replacement, from cumulative [num_classes + 1] and index [num_buckets + 1]
// (core/sampling/cumulative_table.h). If the table was made for another num_sampled, counts are
// NaN and the ids are arbitrary classes.
Status PivotalSample(const SampledArrays& arrays, const int64_t* cumulative,
                     int64_t num_classes, const int64_t* index, int64_t num_buckets,
                     const int64_t* seed, void* scratch, Stream stream);

}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_SAMPLING_H_
