#include <algorithm>
#include <limits>
#include <string>

#include "custom_ops/cuda/lsh_pool.h"
#include "custom_ops/cuda/lsh_query.h"
#include "custom_ops/cuda/lsh_tables.h"
#include "custom_ops/kernels/gpu_context.h"
#include "custom_ops/kernels/largeout_op.h"
#include "custom_ops/kernels/lsh_tables_input.h"
#include "custom_ops/kernels/sampled_values.h"

namespace largeout {
namespace {

using tensorflow::DEVICE_GPU;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::errors::InvalidArgument;

constexpr int64_t kMostOnGpu = std::numeric_limits<int32_t>::max();

// Codes, labels and tables are not looked at in these ops: what is out of range is passed
// over, see custom_ops/cuda/lsh_query.h.
class LshQueryGpuOp : public LargeoutOp {
 public:
  explicit LshQueryGpuOp(OpKernelConstruction* ctx) : LargeoutOp(ctx) {
    std::string select;
    OP_REQUIRES_OK(ctx, ctx->GetAttr("select", &select));
    OP_REQUIRES_OK(ctx, ReadCount(ctx, "num_sampled", &draw_.num_sampled));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("max_lookups", &draw_.max_lookups));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("fill", &draw_.fill));
    walks_ = select == "walk";
  }

  void Run(OpKernelContext* ctx) override {
    const Tensor &codes = ctx->input(2), &labels = ctx->input(3), &seed = ctx->input(4);
    LshTablesInput input;
    OP_REQUIRES_OK(ctx, input.Read(ctx));
    const LshTables tables = input.tables();
    OP_REQUIRES_OK(ctx, CheckQueryShapes(codes, labels, tables));
    OP_REQUIRES_OK(ctx, CheckSeedShape(seed));
    Tensor *sampled, *num_filled;
    OP_REQUIRES_OK(ctx,
                   AllocateOutput(ctx, 0, {codes.dim_size(0), draw_.num_sampled}, &sampled));
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 1, {codes.dim_size(0)}, &num_filled));
    const LshQueries queries = QueriesOf(codes, &labels);
    LshDraw draw = draw_;
    OP_REQUIRES_OK(ctx, LimitLookups(tables, queries, &draw));
    GpuScratch scratch;
    OP_REQUIRES_OK(
        ctx, scratch.Allocate(ctx, walks_ ? cuda::WalkBucketsScratchBytes(queries, draw)
                                          : cuda::MostMetClassesScratchBytes(queries, draw)));
    const auto query = walks_ ? cuda::WalkBuckets : cuda::MostMetClasses;
    OP_REQUIRES_OK(
        ctx, FromCuda(query(tables, queries, draw, seed.flat<int64_t>().data(),
                            sampled->flat<int64_t>().data(), num_filled->flat<int32_t>().data(),
                            scratch.data(), StreamOf(ctx))));
  }

 private:
  // More lookups than there are entries change nothing, and take memory.
  static absl::Status LimitLookups(const LshTables& tables, const LshQueries& queries,
                                   LshDraw* draw) {
    const int64_t num_entries = queries.num_codes * tables.num_classes;
    draw->max_lookups = std::min(draw->max_lookups, std::max<int64_t>(1, num_entries));
    if (draw->max_lookups <= kMostOnGpu) return absl::OkStatus();
    return InvalidArgument("max_lookups must be below 2^31 on a GPU, got ", draw->max_lookups);
  }

  bool walks_;
  LshDraw draw_{};
};

class LshPoolGpuOp : public LargeoutOp {
 public:
  explicit LshPoolGpuOp(OpKernelConstruction* ctx) : LargeoutOp(ctx) {
    OP_REQUIRES_OK(ctx, ReadCount(ctx, "num_sampled", &num_sampled_));
  }

  void Run(OpKernelContext* ctx) override {
    const Tensor &codes = ctx->input(2), &seed = ctx->input(3);
    LshTablesInput input;
    OP_REQUIRES_OK(ctx, input.Read(ctx));
    const LshTables tables = input.tables();
    OP_REQUIRES_OK(ctx, CheckCodesShape(codes, tables));
    OP_REQUIRES_OK(ctx, CheckSeedShape(seed));
    OP_REQUIRES(ctx, codes.NumElements() <= kMostOnGpu,
                InvalidArgument("codes must be fewer than 2^31 on a GPU, got ",
                                codes.shape().DebugString()));
    Tensor *sampled, *num_entries;
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 0, {num_sampled_}, &sampled));
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 1, {}, &num_entries));
    const LshQueries queries = QueriesOf(codes, nullptr);
    GpuScratch scratch;
    OP_REQUIRES_OK(ctx, scratch.Allocate(ctx, cuda::DrawEntriesScratchBytes(queries)));
    OP_REQUIRES_OK(ctx,
                   FromCuda(cuda::DrawEntries(
                       tables, queries, num_sampled_, seed.flat<int64_t>().data(),
                       sampled->flat<int64_t>().data(), num_entries->flat<int64_t>().data(),
                       scratch.data(), StreamOf(ctx))));
  }

 private:
  int64_t num_sampled_;
};

class LshFreshShareGpuOp : public LargeoutOp {
 public:
  using LargeoutOp::LargeoutOp;

  void Run(OpKernelContext* ctx) override {
    const Tensor &codes = ctx->input(2), &row_ids = ctx->input(3);
    LshTablesInput input;
    OP_REQUIRES_OK(ctx, input.Read(ctx));
    const LshTables tables = input.tables();
    OP_REQUIRES_OK(ctx, CheckRowShapes(codes, row_ids, tables));
    Tensor* share;
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 0, {}, &share));
    OP_REQUIRES_OK(
        ctx, FromCuda(cuda::FreshShare(tables, codes.flat<int32_t>().data(),
                                       row_ids.flat<int64_t>().data(), row_ids.dim_size(0),
                                       share->flat<float>().data(), StreamOf(ctx))));
  }
};

#define LARGEOUT_REGISTER(name, Kernel) \
  REGISTER_KERNEL_BUILDER(              \
      Name(name).Device(DEVICE_GPU).HostMemory("offsets").HostMemory("ids"), Kernel)
LARGEOUT_REGISTER("LargeoutLshQuery", LshQueryGpuOp);
LARGEOUT_REGISTER("LargeoutLshPool", LshPoolGpuOp);
LARGEOUT_REGISTER("LargeoutLshFreshShare", LshFreshShareGpuOp);

}  // namespace
}  // namespace largeout
