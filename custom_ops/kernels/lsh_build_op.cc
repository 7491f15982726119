#include <algorithm>

#include "custom_ops/core/lsh_tables.h"
#include "custom_ops/kernels/hash_family_input.h"
#include "custom_ops/kernels/intra_op_parallel.h"
#include "custom_ops/kernels/largeout_op.h"
#include "custom_ops/kernels/lsh_build_input.h"

namespace largeout {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;

class LshBuildOp : public LargeoutOp {
 public:
  explicit LshBuildOp(OpKernelConstruction* ctx) : LargeoutOp(ctx) {
    OP_REQUIRES_OK(ctx, attributes_.Read(ctx));
  }

  void Run(OpKernelContext* ctx) override {
    LshBuildInput in;
    OP_REQUIRES_OK(ctx, in.Read(ctx));
    HashFamily family;
    OP_REQUIRES_OK(ctx, attributes_.Family(in.dim(), ctx->input(1), &family));
    OP_REQUIRES_OK(ctx, in.MakeWritable(ctx, family));
    try {
      BuildLshTables(family, in.rows(), in.num_rows(), IntraOpParallel(ctx), in.offsets(),
                     in.ids());
    } catch (...) {  // nobody shall see them half-built
      std::fill_n(in.offsets(), NumOffsets(family), 0);
      throw;
    }
  }

 private:
  static int64_t NumOffsets(const HashFamily& family) {
    return family.num_tables * ((int64_t{1} << family.bits) + 1);
  }

  HashFamilyAttributes attributes_;
};

REGISTER_KERNEL_BUILDER(Name("LargeoutLshBuild").Device(tensorflow::DEVICE_CPU), LshBuildOp);

}  // namespace
}  // namespace largeout
