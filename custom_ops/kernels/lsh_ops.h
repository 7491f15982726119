// The ops on hash tables, for every device.
//
// A Device has the static functions Query, Pool, FreshShare and Build, which take the context
// first and return a status; see the ops. Codes, labels, ids and seeds are in device memory,
// and the functions check them as far as the device allows. Its kReadsBfloat16 says whether the
// rows of Build may be bfloat16.

#ifndef LARGEOUT_CUSTOM_OPS_KERNELS_LSH_OPS_H_
#define LARGEOUT_CUSTOM_OPS_KERNELS_LSH_OPS_H_

#include <string>

#include "custom_ops/kernels/hash_family_input.h"
#include "custom_ops/kernels/largeout_op.h"
#include "custom_ops/kernels/lsh_tables_input.h"

namespace largeout {

template <class Device>
class LshQueryOp : public LargeoutOp {
 public:
  explicit LshQueryOp(tensorflow::OpKernelConstruction* ctx) : LargeoutOp(ctx) {
    std::string select;
    OP_REQUIRES_OK(ctx, ctx->GetAttr("select", &select));
    OP_REQUIRES_OK(ctx, ReadCount(ctx, "num_sampled", &draw_.num_sampled));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("max_lookups", &draw_.max_lookups));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("fill", &draw_.fill));
    walks_ = select == "walk";
  }

  void Run(tensorflow::OpKernelContext* ctx) override {
    const tensorflow::Tensor &codes = ctx->input(2), &labels = ctx->input(3);
    const int64_t* seed = nullptr;
    LshTablesInput input;
    OP_REQUIRES_OK(ctx, input.Read(ctx));
    const LshTables tables = input.tables();
    OP_REQUIRES_OK(ctx, CheckQueryShapes(codes, labels, tables));
    OP_REQUIRES_OK(ctx, ReadSeed(ctx->input(4), &seed));
    const int64_t batch = codes.dim_size(0);
    tensorflow::Tensor *sampled, *num_filled;
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 0, {batch, draw_.num_sampled}, &sampled));
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 1, {batch}, &num_filled));
    // If `walks_`, by WalkBuckets of core/lsh/lsh_query.h, else by MostMetClasses.
    OP_REQUIRES_OK(ctx, Device::Query(ctx, walks_, tables, QueriesOf(codes, &labels), draw_,
                                      seed, sampled->flat<int64_t>().data(),
                                      num_filled->flat<int32_t>().data()));
  }

 private:
  bool walks_;
  LshDraw draw_{};
};

template <class Device>
class LshPoolOp : public LargeoutOp {
 public:
  explicit LshPoolOp(tensorflow::OpKernelConstruction* ctx) : LargeoutOp(ctx) {
    OP_REQUIRES_OK(ctx, ReadCount(ctx, "num_sampled", &num_sampled_));
  }

  void Run(tensorflow::OpKernelContext* ctx) override {
    const tensorflow::Tensor& codes = ctx->input(2);
    const int64_t* seed = nullptr;
    LshTablesInput input;
    OP_REQUIRES_OK(ctx, input.Read(ctx));
    const LshTables tables = input.tables();
    OP_REQUIRES_OK(ctx, CheckCodesShape(codes, tables));
    OP_REQUIRES_OK(ctx, ReadSeed(ctx->input(3), &seed));
    tensorflow::Tensor *sampled, *num_entries;
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 0, {num_sampled_}, &sampled));
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 1, {}, &num_entries));
    OP_REQUIRES_OK(ctx, Device::Pool(ctx, tables, QueriesOf(codes, nullptr), num_sampled_, seed,
                                     sampled->flat<int64_t>().data(),
                                     num_entries->flat<int64_t>().data()));
  }

 private:
  int64_t num_sampled_;
};

template <class Device>
class LshFreshShareOp : public LargeoutOp {
 public:
  using LargeoutOp::LargeoutOp;

  void Run(tensorflow::OpKernelContext* ctx) override {
    const tensorflow::Tensor &codes = ctx->input(2), &row_ids = ctx->input(3);
    LshTablesInput input;
    OP_REQUIRES_OK(ctx, input.Read(ctx));
    const LshTables tables = input.tables();
    OP_REQUIRES_OK(ctx, CheckRowShapes(codes, row_ids, tables));
    tensorflow::Tensor* share;
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 0, {}, &share));
    OP_REQUIRES_OK(
        ctx, Device::FreshShare(ctx, tables, QueriesOf(codes, nullptr),
                                row_ids.flat<int64_t>().data(), share->flat<float>().data()));
  }
};

// The rows that hash tables are built from, and the tables. Holds the locks during its
// lifetime.
class LshBuildInput {
 public:
  absl::Status Read(tensorflow::OpKernelContext* ctx, bool accepts_bfloat16) {
    TF_RETURN_IF_ERROR(CheckDistinctVariables(ctx));
    TF_RETURN_IF_ERROR(matrix_.Find(ctx, "embeddings"));
    matrix_.LockShared();
    TF_RETURN_IF_ERROR(tables_.ReadForWriting(ctx));
    const tensorflow::Tensor& rows = *matrix_.tensor(0);
    const int64_t num_classes = tables_.ids()->dim_size(1);
    const bool has_dtype = rows.dtype() == tensorflow::DT_FLOAT ||
                           (accepts_bfloat16 && rows.dtype() == tensorflow::DT_BFLOAT16);
    if (has_dtype && rows.dims() == 2 && rows.dim_size(1) > 0 &&
        rows.dim_size(0) == num_classes) {
      return absl::OkStatus();
    }
    return WrongShape(rows, "embeddings", "a float variable [", num_classes,
                      ", dim], one row for each class of the tables");
  }

  // REQUIRES: the rows are float32.
  const float* rows() const { return matrix_.tensor(0)->flat<float>().data(); }
  // The rows if they are bfloat16, else null.
  const uint16_t* bfloat16_rows() const {
    const tensorflow::Tensor& rows = *matrix_.tensor(0);
    if (rows.dtype() != tensorflow::DT_BFLOAT16) return nullptr;
    return reinterpret_cast<const uint16_t*>(rows.flat<tensorflow::bfloat16>().data());
  }
  int64_t num_rows() const { return matrix_.tensor(0)->dim_size(0); }
  int64_t dim() const { return matrix_.tensor(0)->dim_size(1); }
  int32_t* offsets() const { return TableNumbers(tables_.offsets()); }
  int32_t* ids() const { return TableNumbers(tables_.ids()); }

  // Makes both tables writable, if their shapes are those of the family. The caller must then
  // write all of both, because they may have new, uninitialised memory.
  absl::Status MakeWritable(tensorflow::OpKernelContext* ctx, const HashFamily& family) const {
    tensorflow::Tensor *offsets = tables_.offsets(), own_offsets, own_ids;
    if (offsets->dim_size(0) != family.num_tables ||
        offsets->dim_size(1) != (int64_t{1} << family.bits) + 1) {
      return WrongShape(*offsets, "offsets", "[", family.num_tables, ", 2^", family.bits,
                        " + 1]");
    }
    TF_RETURN_IF_ERROR(MakeOwn(ctx, *offsets, &own_offsets));
    TF_RETURN_IF_ERROR(MakeOwn(ctx, *tables_.ids(), &own_ids));
    *offsets = own_offsets;
    *tables_.ids() = own_ids;
    return absl::OkStatus();
  }

 private:
  // Gives the table memory of its own: new memory if a reader holds its current memory.
  static absl::Status MakeOwn(tensorflow::OpKernelContext* ctx, const tensorflow::Tensor& table,
                              tensorflow::Tensor* own) {
    if (!table.RefCountIsOne()) return ctx->allocate_temp(table.dtype(), table.shape(), own);
    *own = table;
    return absl::OkStatus();
  }

  LockedVariables matrix_;
  LshTablesInput tables_;
};

// Build(ctx, attributes, family, in) checks the functions of the family, calls MakeWritable
// after all checks, and builds the tables.
template <class Device>
class LshBuildOp : public LargeoutOp {
 public:
  explicit LshBuildOp(tensorflow::OpKernelConstruction* ctx) : LargeoutOp(ctx) {
    OP_REQUIRES_OK(ctx, attributes_.Read(ctx));
  }

  void Run(tensorflow::OpKernelContext* ctx) override {
    LshBuildInput in;
    OP_REQUIRES_OK(ctx, in.Read(ctx, Device::kReadsBfloat16));
    HashFamily family;
    OP_REQUIRES_OK(ctx, attributes_.Family(in.dim(), ctx->input(1), &family));
    OP_REQUIRES_OK(ctx, Device::Build(ctx, attributes_, family, in));
  }

 private:
  HashFamilyAttributes attributes_;
};

// Registers the ops with a Device for the TensorFlow device `name`. Handles are in host memory.
#define LARGEOUT_REGISTER_LSH_OP(name, op, Kernel) \
  REGISTER_KERNEL_BUILDER(Name(op).Device(name).HostMemory("offsets").HostMemory("ids"), Kernel)
#define LARGEOUT_REGISTER_LSH_OPS(name, Functions)                                     \
  LARGEOUT_REGISTER_LSH_OP(name, "LargeoutLshQuery", LshQueryOp<Functions>);           \
  LARGEOUT_REGISTER_LSH_OP(name, "LargeoutLshPool", LshPoolOp<Functions>);             \
  LARGEOUT_REGISTER_LSH_OP(name, "LargeoutLshFreshShare", LshFreshShareOp<Functions>); \
  REGISTER_KERNEL_BUILDER(Name("LargeoutLshBuild")                                     \
                              .Device(name)                                            \
                              .HostMemory("embeddings")                                \
                              .HostMemory("offsets")                                   \
                              .HostMemory("ids"),                                      \
                          LshBuildOp<Functions>)

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_KERNELS_LSH_OPS_H_
