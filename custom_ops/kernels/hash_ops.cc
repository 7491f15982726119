#include "custom_ops/kernels/hash_ops.h"

#include "custom_ops/kernels/intra_op_parallel.h"
#include "custom_ops/kernels/sampled_values.h"

namespace largeout {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

class HashFunctionsOp : public LargeoutOp {
 public:
  explicit HashFunctionsOp(OpKernelConstruction* ctx) : LargeoutOp(ctx) {
    OP_REQUIRES_OK(ctx, attributes_.Read(ctx));
    OP_REQUIRES_OK(ctx, ReadCount(ctx, "dim", &dim_));
  }

  void Run(OpKernelContext* ctx) override {
    const int64_t* seed = nullptr;
    OP_REQUIRES_OK(ctx, ReadSeed(ctx->input(0), &seed));
    HashFamily family;
    OP_REQUIRES_OK(ctx, attributes_.Family(dim_, &family));
    Tensor* functions;
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 0, {HashFunctionsSize(family)}, &functions));
    MakeHashFunctions(family, SeedFrom(seed), functions->flat<int32_t>().data());
  }

 private:
  HashFamilyAttributes attributes_;
  int64_t dim_;
};

struct CpuHash {
  static absl::Status CheckFunctions(const HashFamilyAttributes& attributes,
                                     const HashFamily& family) {
    return attributes.CheckFunctions(family);
  }

  static absl::Status HashRows(OpKernelContext* ctx, const HashFamily& family,
                               const float* rows, int64_t num_rows, int32_t* codes) {
    HashQueries(family, rows, num_rows, IntraOpParallel(ctx), codes);
    return absl::OkStatus();
  }
};

LARGEOUT_REGISTER_HASH_OPS(tensorflow::DEVICE_CPU, CpuHash);
REGISTER_KERNEL_BUILDER(Name("LargeoutHashFunctions").Device(tensorflow::DEVICE_CPU),
                        HashFunctionsOp);

}  // namespace
}  // namespace largeout
