#include "custom_ops/kernels/hash_ops.h"

#include <algorithm>

#include "custom_ops/kernels/intra_op_parallel.h"
#include "custom_ops/kernels/sampled_values.h"

namespace largeout {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::errors::InvalidArgument;

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

class SparseHashValuesOp : public LargeoutOp {
 public:
  explicit SparseHashValuesOp(OpKernelConstruction* ctx) : LargeoutOp(ctx) {
    OP_REQUIRES_OK(ctx, attributes_.Read(ctx));
    OP_REQUIRES_OK(ctx, ReadCount(ctx, "dim", &dim_));
  }

  void Run(OpKernelContext* ctx) override {
    OP_REQUIRES_OK(ctx, CheckSparseRows(ctx->input(0), ctx->input(1), ctx->input(2)));
    HashFamily family;
    OP_REQUIRES_OK(ctx, attributes_.Family(dim_, ctx->input(3), &family));
    OP_REQUIRES_OK(ctx, attributes_.CheckFunctions(family));
    const int64_t num_rows = ctx->input(2).NumElements() - 1;
    Tensor* values;
    OP_REQUIRES_OK(
        ctx, AllocateOutput(ctx, 0, {num_rows, family.num_tables, family.num_hashes}, &values));
    const SparseRows rows = {ctx->input(0).flat<int64_t>().data(),
                             ctx->input(1).flat<float>().data(),
                             ctx->input(2).flat<int64_t>().data()};
    HashValues(family, rows, num_rows, IntraOpParallel(ctx), values->flat<int32_t>().data());
  }

 private:
  absl::Status CheckSparseRows(const Tensor& ids, const Tensor& values,
                               const Tensor& row_splits) const {
    if (ids.dims() != 1 || values.shape() != ids.shape()) {
      return InvalidArgument("ids and values must be vectors of the same length, received ",
                             ids.shape().DebugString(), " and ", values.shape().DebugString());
    }
    const auto id = ids.vec<int64_t>();
    for (int64_t i = 0; i < id.size(); ++i) {
      if (id(i) < 0 || id(i) >= dim_) {
        return InvalidArgument("ids must be in [0, dim=", dim_, "), received ", id(i),
                               " at position ", i);
      }
    }
    const auto split = row_splits.flat<int64_t>();
    const int64_t size = split.size();
    if (row_splits.dims() != 1 || size < 1 || split(0) != 0 || split(size - 1) != id.size() ||
        !std::is_sorted(split.data(), split.data() + size)) {
      return InvalidArgument(
          "row_splits must be a vector that increases from 0 to the number of ids, ", id.size(),
          "; received ", row_splits.DebugString());
    }
    return absl::OkStatus();
  }

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

  static absl::Status HashValues(OpKernelContext* ctx, const HashFamily& family,
                                 const float* rows, int64_t num_rows, int32_t* values) {
    largeout::HashValues(family, rows, num_rows, IntraOpParallel(ctx), values);
    return absl::OkStatus();
  }
};

LARGEOUT_REGISTER_HASH_OPS(tensorflow::DEVICE_CPU, CpuHash);
REGISTER_KERNEL_BUILDER(Name("LargeoutHashFunctions").Device(tensorflow::DEVICE_CPU),
                        HashFunctionsOp);
REGISTER_KERNEL_BUILDER(Name("LargeoutSparseHashValues").Device(tensorflow::DEVICE_CPU),
                        SparseHashValuesOp);

}  // namespace
}  // namespace largeout
