// The ops that hash dense vectors, for every device.
//
// A Device has these static functions, which return a status: CheckFunctions(attributes,
// family), which checks the hash functions as far as the device allows; and HashRows and
// HashValues of core/lsh/lsh_hash.h, which take the context first and write [n, num_tables] and
// [n, num_tables, num_hashes].

#ifndef LARGEOUT_CUSTOM_OPS_KERNELS_HASH_OPS_H_
#define LARGEOUT_CUSTOM_OPS_KERNELS_HASH_OPS_H_

#include "custom_ops/kernels/checks.h"
#include "custom_ops/kernels/hash_family_input.h"
#include "custom_ops/kernels/largeout_op.h"

namespace largeout {

// Buckets, or single values.
template <class Device, bool kSingleValues>
class DenseHashOp : public LargeoutOp {
 public:
  explicit DenseHashOp(tensorflow::OpKernelConstruction* ctx) : LargeoutOp(ctx) {
    OP_REQUIRES_OK(ctx, attributes_.Read(ctx));
  }

  void Run(tensorflow::OpKernelContext* ctx) override {
    const tensorflow::Tensor& vectors = ctx->input(0);
    OP_REQUIRES(ctx, vectors.dims() == 2, WrongShape(vectors, "vectors", "[n, dim]"));
    HashFamily family;
    OP_REQUIRES_OK(ctx, attributes_.Family(vectors.dim_size(1), ctx->input(1), &family));
    OP_REQUIRES_OK(ctx, Device::CheckFunctions(attributes_, family));
    const int64_t n = vectors.dim_size(0), num_tables = family.num_tables;
    tensorflow::Tensor* output;
    OP_REQUIRES_OK(
        ctx, kSingleValues ? AllocateOutput(ctx, 0, {n, num_tables, family.num_hashes}, &output)
                           : AllocateOutput(ctx, 0, {n, num_tables}, &output));
    const auto hash = kSingleValues ? Device::HashValues : Device::HashRows;
    OP_REQUIRES_OK(ctx, hash(ctx, family, vectors.flat<float>().data(), n,
                             output->flat<int32_t>().data()));
  }

 private:
  HashFamilyAttributes attributes_;
};

// Registers the ops with a Device for the TensorFlow device `name`.
#define LARGEOUT_REGISTER_HASH_OPS(name, Functions)             \
  REGISTER_KERNEL_BUILDER(Name("LargeoutLshHash").Device(name), \
                          DenseHashOp<Functions, false>);       \
  REGISTER_KERNEL_BUILDER(Name("LargeoutHashValues").Device(name), DenseHashOp<Functions, true>)

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_KERNELS_HASH_OPS_H_
