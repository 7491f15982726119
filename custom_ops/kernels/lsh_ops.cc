#include <string>

#include "custom_ops/core/lsh_pool.h"
#include "custom_ops/core/lsh_query.h"
#include "custom_ops/kernels/intra_op_parallel.h"
#include "custom_ops/kernels/largeout_op.h"
#include "custom_ops/kernels/lsh_tables_input.h"
#include "custom_ops/kernels/sampled_values.h"

namespace largeout {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::errors::InvalidArgument;

absl::Status Damaged() {
  return tensorflow::errors::DataLoss(
      "the hash tables are damaged: they hold ids that are no classes. Rebuild them with "
      "sampler.rebuild(layer)");
}

class LshQueryOp : public LargeoutOp {
 public:
  explicit LshQueryOp(OpKernelConstruction* ctx) : LargeoutOp(ctx) {
    std::string select;
    OP_REQUIRES_OK(ctx, ctx->GetAttr("select", &select));
    OP_REQUIRES_OK(ctx, ReadCount(ctx, "num_sampled", &draw_.num_sampled));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("max_lookups", &draw_.max_lookups));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("fill", &draw_.fill));
    query_ = select == "walk" ? WalkBuckets : MostMetClasses;
  }

  void Run(OpKernelContext* ctx) override {
    const Tensor &codes = ctx->input(2), &labels = ctx->input(3);
    LshTablesInput input;
    OP_REQUIRES_OK(ctx, input.Read(ctx));
    const LshTables tables = input.tables();
    OP_REQUIRES_OK(ctx, CheckQueryShapes(codes, labels, tables));
    OP_REQUIRES_OK(ctx, CheckCodes(codes, tables));
    OP_REQUIRES_OK(ctx, CheckTrueClasses(labels, tables.num_classes));
    LshDraw draw = draw_;
    OP_REQUIRES_OK(ctx, ReadSeed(ctx->input(4), &draw.seed));
    Tensor *sampled, *num_filled;
    OP_REQUIRES_OK(ctx,
                   AllocateOutput(ctx, 0, {codes.dim_size(0), draw.num_sampled}, &sampled));
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 1, {codes.dim_size(0)}, &num_filled));
    const bool sound =
        query_(tables, QueriesOf(codes, &labels), draw, IntraOpParallel(ctx),
               sampled->flat<int64_t>().data(), num_filled->flat<int32_t>().data());
    OP_REQUIRES(ctx, sound, Damaged());
  }

 private:
  decltype(&WalkBuckets) query_;
  LshDraw draw_;
};

class LshPoolOp : public LargeoutOp {
 public:
  explicit LshPoolOp(OpKernelConstruction* ctx) : LargeoutOp(ctx) {
    OP_REQUIRES_OK(ctx, ReadCount(ctx, "num_sampled", &num_sampled_));
  }

  void Run(OpKernelContext* ctx) override {
    const Tensor& codes = ctx->input(2);
    LshTablesInput input;
    OP_REQUIRES_OK(ctx, input.Read(ctx));
    const LshTables tables = input.tables();
    OP_REQUIRES_OK(ctx, CheckCodes(codes, tables));
    PhiloxSeed seed;
    OP_REQUIRES_OK(ctx, ReadSeed(ctx->input(3), &seed));
    Tensor *sampled, *num_entries;
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 0, {num_sampled_}, &sampled));
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 1, {}, &num_entries));
    int64_t* pool = sampled->flat<int64_t>().data();
    num_entries->scalar<int64_t>()() = DrawEntries(
        tables, QueriesOf(codes, nullptr), num_sampled_, seed, IntraOpParallel(ctx), pool);
    for (int64_t i = 0; i < num_sampled_; ++i) {
      OP_REQUIRES(ctx, -1 <= pool[i] && pool[i] < tables.num_classes, Damaged());
    }
  }

 private:
  int64_t num_sampled_;
};

class UnionOfListsOp : public LargeoutOp {
 public:
  explicit UnionOfListsOp(OpKernelConstruction* ctx) : LargeoutOp(ctx) {
    OP_REQUIRES_OK(ctx, ReadCount(ctx, "num_classes", &num_classes_));
    OP_REQUIRES_OK(ctx, ReadCount(ctx, "num_sampled", &num_sampled_));
  }

  void Run(OpKernelContext* ctx) override {
    const Tensor& lists = ctx->input(0);
    OP_REQUIRES(
        ctx, lists.dims() == 2,
        InvalidArgument("lists must be [batch, width], got ", lists.shape().DebugString()));
    OP_REQUIRES_OK(ctx, CheckTrueClasses(lists, num_classes_));
    PhiloxSeed seed;
    OP_REQUIRES_OK(ctx, ReadSeed(ctx->input(1), &seed));
    Tensor *sampled, *num_filled;
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 0, {num_sampled_}, &sampled));
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 1, {}, &num_filled));
    num_filled->scalar<int64_t>()() =
        UnionOfLists(lists.flat<int64_t>().data(), lists.dim_size(0), lists.dim_size(1),
                     num_classes_, num_sampled_, seed, sampled->flat<int64_t>().data());
  }

 private:
  int64_t num_classes_;
  int64_t num_sampled_;
};

class LshFreshShareOp : public LargeoutOp {
 public:
  using LargeoutOp::LargeoutOp;

  void Run(OpKernelContext* ctx) override {
    const Tensor &codes = ctx->input(2), &row_ids = ctx->input(3);
    LshTablesInput input;
    OP_REQUIRES_OK(ctx, input.Read(ctx));
    const LshTables tables = input.tables();
    OP_REQUIRES_OK(ctx, CheckRowShapes(codes, row_ids, tables));
    OP_REQUIRES_OK(ctx, CheckCodes(codes, tables));
    for (int64_t i = 0; i < codes.NumElements(); ++i) {
      OP_REQUIRES(ctx, codes.flat<int32_t>()(i) >= 0,
                  InvalidArgument("codes must not be negative here"));
    }
    Tensor* share;
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 0, {}, &share));
    const int64_t fresh =
        CountFreshEntries(tables, codes.flat<int32_t>().data(), row_ids.flat<int64_t>().data(),
                          row_ids.dim_size(0));
    share->scalar<float>()() = ShareOf(fresh, codes.NumElements());
  }
};

REGISTER_KERNEL_BUILDER(Name("LargeoutLshQuery").Device(tensorflow::DEVICE_CPU), LshQueryOp);
REGISTER_KERNEL_BUILDER(Name("LargeoutLshPool").Device(tensorflow::DEVICE_CPU), LshPoolOp);
REGISTER_KERNEL_BUILDER(Name("LargeoutUnionOfLists").Device(tensorflow::DEVICE_CPU),
                        UnionOfListsOp);
REGISTER_KERNEL_BUILDER(Name("LargeoutLshFreshShare").Device(tensorflow::DEVICE_CPU),
                        LshFreshShareOp);

}  // namespace
}  // namespace largeout
