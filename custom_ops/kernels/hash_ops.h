// The op that hashes vectors, for every device.
//
// A Device has these static functions, which return a status: CheckFunctions(attributes,
// family), which checks the hash functions as far as the device allows; and HashRows of
// core/lsh/lsh_hash.h, which takes the context first and writes [n, num_tables].

#ifndef LARGEOUT_CUSTOM_OPS_KERNELS_HASH_OPS_H_
#define LARGEOUT_CUSTOM_OPS_KERNELS_HASH_OPS_H_

#include "custom_ops/kernels/checks.h"
#include "custom_ops/kernels/hash_family_input.h"
#include "custom_ops/kernels/largeout_op.h"

namespace largeout {

template <class Device>
class LshHashOp : public LargeoutOp {
 public:
  explicit LshHashOp(tensorflow::OpKernelConstruction* ctx) : LargeoutOp(ctx) {
    OP_REQUIRES_OK(ctx, attributes_.Read(ctx));
  }

  void Run(tensorflow::OpKernelContext* ctx) override {
    const tensorflow::Tensor& vectors = ctx->input(0);
    OP_REQUIRES(ctx, vectors.dims() == 2, WrongShape(vectors, "vectors", "[n, dim]"));
    HashFamily family;
    OP_REQUIRES_OK(ctx, attributes_.Family(vectors.dim_size(1), ctx->input(1), &family));
    OP_REQUIRES_OK(ctx, Device::CheckFunctions(attributes_, family));
    const int64_t n = vectors.dim_size(0);
    tensorflow::Tensor* codes;
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 0, {n, family.num_tables}, &codes));
    OP_REQUIRES_OK(ctx, Device::HashRows(ctx, family, vectors.flat<float>().data(), n,
                                         codes->flat<int32_t>().data()));
  }

 private:
  HashFamilyAttributes attributes_;
};

// Registers the op with a Device for the TensorFlow device `name`.
#define LARGEOUT_REGISTER_HASH_OPS(name, Functions) \
  REGISTER_KERNEL_BUILDER(Name("LargeoutLshHash").Device(name), LshHashOp<Functions>)

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_KERNELS_HASH_OPS_H_
