#include "custom_ops/cuda/sampling.h"
#include "custom_ops/kernels/gpu_context.h"
#include "custom_ops/kernels/table_sampling_ops.h"

namespace largeout {
namespace {

using tensorflow::OpKernelContext;

struct GpuTableSampling {
  using SampledArrays = cuda::SampledArrays;

  static absl::Status Sample(OpKernelContext* ctx, const AliasTable& table, const int64_t* seed,
                             const SampledArrays& arrays) {
    return FromCuda(cuda::AliasSample(arrays, table.slots, table.probability, table.num_classes,
                                      seed, StreamOf(ctx)));
  }

  static absl::Status Sample(OpKernelContext* ctx, const PivotalTable& table,
                             const int64_t* seed, const SampledArrays& arrays) {
    GpuScratch scratch;
    TF_RETURN_IF_ERROR(
        scratch.Allocate(ctx, cuda::UniqueSampleScratchBytes(arrays.num_sampled)));
    return FromCuda(cuda::PivotalSample(arrays, table.cumulative, table.num_classes,
                                        table.index, table.num_buckets, seed, scratch.data(),
                                        StreamOf(ctx)));
  }
};

LARGEOUT_REGISTER_TABLE_SAMPLING_OPS(GpuDeviceType(), GpuTableSampling);

}  // namespace
}  // namespace largeout
