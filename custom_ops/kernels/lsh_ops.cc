#include "custom_ops/kernels/lsh_ops.h"

#include <algorithm>

#include "custom_ops/core/lsh/lsh_pool.h"
#include "custom_ops/kernels/intra_op_parallel.h"
#include "custom_ops/kernels/sampled_values.h"

namespace largeout {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::errors::InvalidArgument;

absl::Status Damaged() {
  return tensorflow::errors::DataLoss(
      "the hash tables are damaged: they contain ids out of range. Rebuild them with "
      "sampler.rebuild(layer)");
}

absl::Status CheckCodes(const LshQueries& queries, const LshTables& tables) {
  for (int64_t i = 0; i < queries.batch * queries.num_codes; ++i) {
    if (queries.codes[i] < tables.num_buckets) continue;
    return InvalidArgument("codes must be below the number of buckets, ", tables.num_buckets,
                           ", got ", queries.codes[i]);
  }
  return absl::OkStatus();
}

struct CpuLsh {
  static constexpr bool kReadsBfloat16 = true;

  static absl::Status Query(OpKernelContext* ctx, bool walks, const LshTables& tables,
                            const LshQueries& queries, LshDraw draw, const int64_t* seed,
                            int64_t* sampled, int32_t* num_filled) {
    TF_RETURN_IF_ERROR(CheckCodes(queries, tables));
    TF_RETURN_IF_ERROR(CheckClassIds(queries.labels, queries.batch * queries.num_labels,
                                     queries.num_labels, -1, tables.num_classes, "labels"));
    draw.seed = SeedFrom(seed);
    const auto query = walks ? WalkBuckets : MostMetClasses;
    const bool sound = query(tables, queries, draw, IntraOpParallel(ctx), sampled, num_filled);
    return sound ? absl::OkStatus() : Damaged();
  }

  static absl::Status Pool(OpKernelContext* ctx, const LshTables& tables,
                           const LshQueries& queries, int64_t num_sampled, const int64_t* seed,
                           int64_t* sampled, int64_t* num_entries) {
    TF_RETURN_IF_ERROR(CheckCodes(queries, tables));
    *num_entries = DrawEntries(tables, queries, num_sampled, SeedFrom(seed),
                               IntraOpParallel(ctx), sampled);
    const bool sound = std::all_of(sampled, sampled + num_sampled, [&](int64_t id) {
      return -1 <= id && id < tables.num_classes;
    });
    return sound ? absl::OkStatus() : Damaged();
  }

  static absl::Status FreshShare(OpKernelContext* ctx, const LshTables& tables,
                                 const LshQueries& queries, const int64_t* row_ids,
                                 float* share) {
    TF_RETURN_IF_ERROR(CheckCodes(queries, tables));
    const int64_t num_codes = queries.batch * queries.num_codes;
    if (std::any_of(queries.codes, queries.codes + num_codes,
                    [](int32_t c) { return c < 0; })) {
      return InvalidArgument("codes must not be negative: the codes of rows have no padding");
    }
    *share =
        ShareOf(CountFreshEntries(tables, queries.codes, row_ids, queries.batch), num_codes);
    return absl::OkStatus();
  }

  static absl::Status Build(OpKernelContext* ctx, const HashFamilyAttributes& attributes,
                            const HashFamily& family, const LshBuildInput& in) {
    TF_RETURN_IF_ERROR(attributes.CheckFunctions(family));
    TF_RETURN_IF_ERROR(in.MakeWritable(ctx, family));
    const auto build = [&](const auto* rows) {
      BuildLshTables(family, rows, in.num_rows(), IntraOpParallel(ctx), in.offsets(), in.ids());
    };
    try {
      if (in.bfloat16_rows() != nullptr) {
        build(in.bfloat16_rows());
      } else {
        build(in.rows());
      }
    } catch (...) {  // leave no half-built tables
      std::fill_n(in.offsets(), family.num_tables * ((int64_t{1} << family.bits) + 1), 0);
      throw;
    }
    return absl::OkStatus();
  }
};

class UnionOfListsOp : public LargeoutOp {
 public:
  explicit UnionOfListsOp(OpKernelConstruction* ctx) : LargeoutOp(ctx) {
    OP_REQUIRES_OK(ctx, ReadCount(ctx, "num_classes", &num_classes_));
    OP_REQUIRES_OK(ctx, ReadCount(ctx, "num_sampled", &num_sampled_));
  }

  void Run(OpKernelContext* ctx) override {
    const Tensor& lists = ctx->input(0);
    const int64_t* seed = nullptr;
    OP_REQUIRES(ctx, lists.dims() == 2, WrongShape(lists, "lists", "[batch, width]"));
    OP_REQUIRES_OK(ctx, CheckClassIds(lists, -1, num_classes_, "lists"));
    OP_REQUIRES_OK(ctx, ReadSeed(ctx->input(1), &seed));
    Tensor *sampled, *num_filled;
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 0, {num_sampled_}, &sampled));
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 1, {}, &num_filled));
    num_filled->scalar<int64_t>()() = UnionOfLists(
        lists.flat<int64_t>().data(), lists.dim_size(0), lists.dim_size(1), num_classes_,
        num_sampled_, SeedFrom(seed), sampled->flat<int64_t>().data());
  }

 private:
  int64_t num_classes_;
  int64_t num_sampled_;
};

LARGEOUT_REGISTER_LSH_OPS(tensorflow::DEVICE_CPU, CpuLsh);
REGISTER_KERNEL_BUILDER(Name("LargeoutUnionOfLists").Device(tensorflow::DEVICE_CPU),
                        UnionOfListsOp);

}  // namespace
}  // namespace largeout
