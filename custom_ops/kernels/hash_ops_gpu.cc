#include "custom_ops/cuda/lsh_hash.h"
#include "custom_ops/kernels/gpu_context.h"
#include "custom_ops/kernels/hash_ops.h"

namespace largeout {
namespace {

using tensorflow::OpKernelContext;

struct GpuHash {
  static absl::Status CheckFunctions(const HashFamilyAttributes&, const HashFamily&) {
    return absl::OkStatus();
  }

  static absl::Status HashRows(OpKernelContext* ctx, const HashFamily& family,
                               const float* rows, int64_t num_rows, int32_t* codes) {
    GpuScratch scratch;
    TF_RETURN_IF_ERROR(scratch.Allocate(ctx, cuda::HashScratchBytes(family)));
    return FromCuda(cuda::HashRows(family, rows, num_rows, {codes, family.num_tables, 1},
                                   scratch.data(), StreamOf(ctx)));
  }
};

LARGEOUT_REGISTER_HASH_OPS(GpuDeviceType(), GpuHash);

}  // namespace
}  // namespace largeout
