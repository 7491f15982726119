#include "custom_ops/core/row_update.h"
#include "custom_ops/kernels/intra_op_parallel.h"
#include "custom_ops/kernels/row_update_op.h"

namespace largeout {
namespace {

using tensorflow::DEVICE_CPU;
using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

class RowAdamOp : public RowUpdateOp {
 public:
  using RowUpdateOp::RowUpdateOp;

 protected:
  absl::Status Update(const Inputs& inputs, const MergedRows& merged, const float* values,
                      int64_t dim, const ParallelFor& parallel_for) override {
    AdamArguments arguments{};
    Tensor variable = inputs.variable;
    arguments.variable = variable.flat<float>().data();
    TF_RETURN_IF_ERROR(FullSlot(inputs, 0, &arguments.momentum));
    TF_RETURN_IF_ERROR(FullSlot(inputs, 1, &arguments.velocity));
    if (inputs.slots.size() > 2) {
      TF_RETURN_IF_ERROR(PerRowSlot(inputs, 2, &arguments.last_step));
    }
    arguments.step = inputs.Scalar<int64_t>(0);
    arguments.step_size = inputs.Scalar<float>(1);
    arguments.beta_1 = inputs.Scalar<double>(2);
    arguments.beta_2 = inputs.Scalar<double>(3);
    arguments.epsilon = inputs.Scalar<float>(4);
    arguments.weight_decay = inputs.Scalar<float>(5);
    UpdateRows(merged, values, dim, arguments, parallel_for);
    return absl::OkStatus();
  }
};

class RowAdagradOp : public RowUpdateOp {
 public:
  using RowUpdateOp::RowUpdateOp;

 protected:
  absl::Status Update(const Inputs& inputs, const MergedRows& merged, const float* values,
                      int64_t dim, const ParallelFor& parallel_for) override {
    AdagradArguments arguments{};
    Tensor variable = inputs.variable;
    arguments.variable = variable.flat<float>().data();
    TF_RETURN_IF_ERROR(FullSlot(inputs, 0, &arguments.accumulator));
    arguments.learning_rate = inputs.Scalar<float>(0);
    arguments.epsilon = inputs.Scalar<float>(1);
    arguments.weight_decay = inputs.Scalar<float>(2);
    UpdateRows(merged, values, dim, arguments, parallel_for);
    return absl::OkStatus();
  }
};

class RowRowwiseAdagradOp : public RowUpdateOp {
 public:
  using RowUpdateOp::RowUpdateOp;

 protected:
  absl::Status Update(const Inputs& inputs, const MergedRows& merged, const float* values,
                      int64_t dim, const ParallelFor& parallel_for) override {
    RowwiseAdagradArguments arguments{};
    Tensor variable = inputs.variable;
    arguments.variable = variable.flat<float>().data();
    TF_RETURN_IF_ERROR(PerRowSlot(inputs, 0, &arguments.accumulator));
    arguments.learning_rate = inputs.Scalar<float>(0);
    arguments.epsilon = inputs.Scalar<float>(1);
    arguments.weight_decay = inputs.Scalar<float>(2);
    UpdateRows(merged, values, dim, arguments, parallel_for);
    return absl::OkStatus();
  }
};

class RowMomentumOp : public RowUpdateOp {
 public:
  explicit RowMomentumOp(OpKernelConstruction* ctx) : RowUpdateOp(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("nesterov", &nesterov_));
  }

 protected:
  absl::Status Update(const Inputs& inputs, const MergedRows& merged, const float* values,
                      int64_t dim, const ParallelFor& parallel_for) override {
    MomentumArguments arguments{};
    Tensor variable = inputs.variable;
    arguments.variable = variable.flat<float>().data();
    if (!inputs.slots.empty()) {
      TF_RETURN_IF_ERROR(FullSlot(inputs, 0, &arguments.momentum));
    }
    arguments.learning_rate = inputs.Scalar<float>(0);
    arguments.decay = inputs.Scalar<float>(1);
    arguments.weight_decay = inputs.Scalar<float>(2);
    arguments.nesterov = nesterov_;
    UpdateRows(merged, values, dim, arguments, parallel_for);
    return absl::OkStatus();
  }

 private:
  bool nesterov_ = false;
};

class MergeRowsOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* ctx) override {
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
    shape.set_dim(0, merged.size());
    Tensor* sums = nullptr;
    Tensor* unique_ids = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, shape, &sums));
    OP_REQUIRES_OK(ctx, ctx->allocate_output(1, {merged.size()}, &unique_ids));
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

class CheckRowIdsOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* ctx) override {
    OP_REQUIRES(ctx, ctx->input(1).dims() == 0,
                absl::InvalidArgumentError("num_rows must be a scalar"));
    OP_REQUIRES_OK(ctx, CheckRowIds(ctx->input(0), ctx->input(1).scalar<int64_t>()()));
    ctx->set_output(0, ctx->input(0));
  }
};

REGISTER_KERNEL_BUILDER(Name("LargeoutRowAdam").Device(DEVICE_CPU), RowAdamOp);
REGISTER_KERNEL_BUILDER(Name("LargeoutRowAdagrad").Device(DEVICE_CPU), RowAdagradOp);
REGISTER_KERNEL_BUILDER(Name("LargeoutRowRowwiseAdagrad").Device(DEVICE_CPU),
                        RowRowwiseAdagradOp);
REGISTER_KERNEL_BUILDER(Name("LargeoutRowMomentum").Device(DEVICE_CPU), RowMomentumOp);
REGISTER_KERNEL_BUILDER(Name("LargeoutMergeRows").Device(DEVICE_CPU), MergeRowsOp);
REGISTER_KERNEL_BUILDER(Name("LargeoutCheckRowIds").Device(DEVICE_CPU), CheckRowIdsOp);

}  // namespace
}  // namespace largeout
