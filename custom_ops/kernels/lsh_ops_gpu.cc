#include <algorithm>
#include <limits>

#include "custom_ops/cuda/lsh_pool.h"
#include "custom_ops/cuda/lsh_query.h"
#include "custom_ops/cuda/lsh_tables.h"
#include "custom_ops/kernels/gpu_context.h"
#include "custom_ops/kernels/lsh_ops.h"

namespace largeout {
namespace {

using tensorflow::OpKernelContext;
using tensorflow::errors::InvalidArgument;

constexpr int64_t kMostOnGpu = std::numeric_limits<int32_t>::max();

// These ops do not check codes, labels and tables: values out of range are skipped, see
// custom_ops/cuda/lsh_query.h.
struct GpuLsh {
  static constexpr bool kReadsBfloat16 = false;

  static absl::Status Query(OpKernelContext* ctx, bool walks, const LshTables& tables,
                            const LshQueries& queries, LshDraw draw, const int64_t* seed,
                            int64_t* sampled, int32_t* num_filled) {
    // More lookups than entries would change nothing, but take memory.
    const int64_t num_entries = queries.num_codes * tables.num_classes;
    draw.max_lookups = std::min(draw.max_lookups, std::max<int64_t>(1, num_entries));
    if (draw.max_lookups > kMostOnGpu) {
      return InvalidArgument("max_lookups must be less than 2^31 on a GPU, got ",
                             draw.max_lookups);
    }
    GpuScratch scratch;
    TF_RETURN_IF_ERROR(
        scratch.Allocate(ctx, walks ? cuda::WalkBucketsScratchBytes(queries, draw)
                                    : cuda::MostMetClassesScratchBytes(queries, draw)));
    const auto query = walks ? cuda::WalkBuckets : cuda::MostMetClasses;
    return FromCuda(
        query(tables, queries, draw, seed, sampled, num_filled, scratch.data(), StreamOf(ctx)));
  }

  static absl::Status Pool(OpKernelContext* ctx, const LshTables& tables,
                           const LshQueries& queries, int64_t num_sampled, const int64_t* seed,
                           int64_t* sampled, int64_t* num_entries) {
    if (queries.batch * queries.num_codes > kMostOnGpu) {
      return InvalidArgument("codes must be fewer than 2^31 on a GPU, got ", queries.batch,
                             " examples with ", queries.num_codes, " codes each");
    }
    GpuScratch scratch;
    TF_RETURN_IF_ERROR(scratch.Allocate(ctx, cuda::DrawEntriesScratchBytes(queries)));
    return FromCuda(cuda::DrawEntries(tables, queries, num_sampled, seed, sampled, num_entries,
                                      scratch.data(), StreamOf(ctx)));
  }

  static absl::Status FreshShare(OpKernelContext* ctx, const LshTables& tables,
                                 const LshQueries& queries, const int64_t* row_ids,
                                 float* share) {
    return FromCuda(
        cuda::FreshShare(tables, queries.codes, row_ids, queries.batch, share, StreamOf(ctx)));
  }

  static absl::Status Build(OpKernelContext* ctx, const HashFamilyAttributes&,
                            const HashFamily& family, const LshBuildInput& in) {
    GpuScratch scratch;
    TF_RETURN_IF_ERROR(
        scratch.Allocate(ctx, cuda::BuildLshTablesScratchBytes(family, in.num_rows())));
    TF_RETURN_IF_ERROR(in.MakeWritable(ctx, family));
    return FromCuda(cuda::BuildLshTables(family, in.rows(), in.num_rows(), in.offsets(),
                                         in.ids(), scratch.data(), StreamOf(ctx)));
  }
};

LARGEOUT_REGISTER_LSH_OPS(GpuDeviceType(), GpuLsh);

}  // namespace
}  // namespace largeout
