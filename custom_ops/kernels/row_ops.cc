#include <cstring>
#include <limits>

#include "custom_ops/core/row_update.h"
#include "custom_ops/kernels/intra_op_parallel.h"
#include "custom_ops/kernels/largeout_op.h"
#include "custom_ops/kernels/row_update_arguments.h"
#include "custom_ops/kernels/row_update_op.h"

namespace largeout {
namespace {

using tensorflow::DEVICE_CPU;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

template <typename Index>
absl::Status CheckIds(const Tensor& ids, int64_t num_rows) {
  const Index* data = ids.flat<Index>().data();
  const int64_t bad = FindIdOutOfRange(data, ids.NumElements(), num_rows);
  if (bad < 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "ids[", bad, "] = ", data[bad], " is not a row: expected 0 <= id < ", num_rows));
}

// OK if every id lies in [0, num_rows); else an error with the first that does not.
absl::Status CheckRowIds(const Tensor& ids, int64_t num_rows) {
  TF_RETURN_IF_ERROR(CheckRowIdsShape(ids));
  return ids.dtype() == tensorflow::DT_INT64 ? CheckIds<int64_t>(ids, num_rows)
                                             : CheckIds<int32_t>(ids, num_rows);
}

// `ids` has been checked and is int32 or int64.
MergedRows MergeRowIds(const Tensor& ids, const ParallelFor& parallel_for) {
  return ids.dtype() == tensorflow::DT_INT64
             ? MergeRows(ids.flat<int64_t>().data(), ids.NumElements(), parallel_for)
             : MergeRows(ids.flat<int32_t>().data(), ids.NumElements(), parallel_for);
}

class RowUpdateCpuOp : public RowUpdateOp {
 public:
  using RowUpdateOp::RowUpdateOp;

 protected:
  template <class Arguments>
  static absl::Status Step(const RowUpdateInputs& inputs, const Arguments& arguments) {
    TF_RETURN_IF_ERROR(CheckRowIds(inputs.ids(), inputs.num_rows()));
    const ParallelFor parallel_for = IntraOpParallel(inputs.ctx);
    UpdateRows(MergeRowIds(inputs.ids(), parallel_for), inputs.values(), inputs.dim(),
               arguments, parallel_for);
    return absl::OkStatus();
  }

  absl::Status Copy(OpKernelContext*, const Tensor& from, Tensor* to) final {
    std::memcpy(to->data(), from.data(), from.TotalBytes());
    return absl::OkStatus();
  }
};

class MergeRowsOp : public LargeoutOp {
 public:
  using LargeoutOp::LargeoutOp;

  void Run(OpKernelContext* ctx) override {
    const Tensor& values = ctx->input(0);
    const Tensor& ids = ctx->input(1);
    OP_REQUIRES_OK(ctx, CheckRowIds(ids, std::numeric_limits<int64_t>::max()));
    OP_REQUIRES(ctx, values.dims() >= 1 && values.dim_size(0) == ids.NumElements(),
                absl::InvalidArgumentError(
                    absl::StrCat("values must have shape [n, ...] for n = ", ids.NumElements(),
                                 " ids, but has ", values.shape().DebugString())));
    const ParallelFor parallel_for = IntraOpParallel(ctx);
    const MergedRows merged = MergeRowIds(ids, parallel_for);

    tensorflow::TensorShape shape = values.shape();
    OP_REQUIRES_OK(ctx, shape.SetDimWithStatus(0, merged.size()));
    Tensor* sums = nullptr;
    Tensor* unique_ids = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, shape, &sums));
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 1, {merged.size()}, &unique_ids));
    if (merged.size() == 0) return;
    SumRows(merged, values.flat<float>().data(), sums->NumElements() / merged.size(),
            sums->flat<float>().data(), parallel_for);
    if (ids.dtype() == tensorflow::DT_INT64) {
      std::copy(merged.ids.begin(), merged.ids.end(), unique_ids->flat<int64_t>().data());
    } else {
      std::copy(merged.ids.begin(), merged.ids.end(), unique_ids->flat<int32_t>().data());
    }
  }
};

class CheckRowIdsOp : public LargeoutOp {
 public:
  using LargeoutOp::LargeoutOp;

  void Run(OpKernelContext* ctx) override {
    OP_REQUIRES(ctx, ctx->input(1).dims() == 0,
                absl::InvalidArgumentError("num_rows must be a scalar"));
    OP_REQUIRES_OK(ctx, CheckRowIds(ctx->input(0), ctx->input(1).scalar<int64_t>()()));
    ctx->set_output(0, ctx->input(0));
  }
};

using AdamOp = RowAdamOp<RowUpdateCpuOp, AdamArguments>;
using AdagradOp = RowAdagradOp<RowUpdateCpuOp, AdagradArguments, false>;
using RowwiseAdagradOp = RowAdagradOp<RowUpdateCpuOp, RowwiseAdagradArguments, true>;
using MomentumOp = RowMomentumOp<RowUpdateCpuOp, MomentumArguments>;

REGISTER_KERNEL_BUILDER(Name("LargeoutRowAdam").Device(DEVICE_CPU), AdamOp);
REGISTER_KERNEL_BUILDER(Name("LargeoutRowAdagrad").Device(DEVICE_CPU), AdagradOp);
REGISTER_KERNEL_BUILDER(Name("LargeoutRowRowwiseAdagrad").Device(DEVICE_CPU), RowwiseAdagradOp);
REGISTER_KERNEL_BUILDER(Name("LargeoutRowMomentum").Device(DEVICE_CPU), MomentumOp);
REGISTER_KERNEL_BUILDER(Name("LargeoutMergeRows").Device(DEVICE_CPU), MergeRowsOp);
REGISTER_KERNEL_BUILDER(Name("LargeoutCheckRowIds").Device(DEVICE_CPU), CheckRowIdsOp);

}  // namespace
}  // namespace largeout
