// The ops that update or merge rows.

#include <algorithm>
#include <limits>
#include <type_traits>

#include "custom_ops/core/optimizers/row_update.h"
#include "custom_ops/kernels/huge_pages.h"
#include "custom_ops/kernels/intra_op_parallel.h"
#include "custom_ops/kernels/row_update_inputs.h"

namespace largeout {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

// Calls use(ids), a pointer to int64_t or int32_t.
template <class AnyTensor, class Use>
auto WithIds(AnyTensor& ids, const Use& use) {
  return ids.dtype() == tensorflow::DT_INT64 ? use(ids.template flat<int64_t>().data())
                                             : use(ids.template flat<int32_t>().data());
}

MergedRows MergeRowIds(const Tensor& ids, const ParallelFor& parallel_for) {
  return WithIds(
      ids, [&](const auto* data) { return MergeRows(data, ids.NumElements(), parallel_for); });
}

absl::Status CheckRowIds(const Tensor& ids, int64_t num_rows) {
  return WithIds(ids, [&](const auto* data) {
    const int64_t bad = FindIdOutOfRange(data, ids.NumElements(), num_rows);
    if (bad < 0) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        "ids[", bad, "] = ", data[bad], " is not a row: expected 0 <= id < ", num_rows));
  });
}

// Readers of the attributes and inputs of the ops, one class per optimizer. `Arguments` are
// those of its step (row_update_rules.h).

class AdamReader {
 public:
  using Arguments = AdamArguments;

  absl::Status ReadAttributes(OpKernelConstruction* ctx) {
    int num_last_step = 0;
    TF_RETURN_IF_ERROR(ctx->GetAttr("num_momentum", &num_momentum_));
    TF_RETURN_IF_ERROR(ctx->GetAttr("num_last_step", &num_last_step));
    if (num_momentum_ <= 1 && num_last_step <= 1) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("momentum and last_step must be one variable each or none, but are ",
                     num_momentum_, " and ", num_last_step));
  }

  absl::Status Read(const RowUpdateInputs& inputs, Arguments* arguments) const {
    int slot = 0;
    if (num_momentum_ > 0) {
      TF_RETURN_IF_ERROR(inputs.FullSlot(slot++, &arguments->momentum));
    }
    TF_RETURN_IF_ERROR(inputs.FullSlot(slot++, &arguments->velocity));
    if (slot < inputs.num_slots()) {
      TF_RETURN_IF_ERROR(inputs.PerRowSlot(slot, &arguments->last_step));
    }
    inputs.Scalar(0, &arguments->step);
    inputs.Scalar(1, &arguments->step_size);
    inputs.Scalar(2, &arguments->beta_1);
    inputs.Scalar(3, &arguments->beta_2);
    inputs.Scalar(4, &arguments->epsilon);
    inputs.Scalar(5, &arguments->weight_decay);
    return absl::OkStatus();
  }

 private:
  int num_momentum_ = 1;
};

template <bool kOnePerRow>
struct AdagradReader {
  using Arguments = std::conditional_t<kOnePerRow, RowwiseAdagradArguments, AdagradArguments>;

  absl::Status ReadAttributes(OpKernelConstruction*) { return absl::OkStatus(); }

  absl::Status Read(const RowUpdateInputs& inputs, Arguments* arguments) const {
    TF_RETURN_IF_ERROR(kOnePerRow ? inputs.PerRowSlot(0, &arguments->accumulator)
                                  : inputs.FullSlot(0, &arguments->accumulator));
    inputs.Scalar(0, &arguments->learning_rate);
    inputs.Scalar(1, &arguments->epsilon);
    inputs.Scalar(2, &arguments->weight_decay);
    return absl::OkStatus();
  }
};

class MomentumReader {
 public:
  using Arguments = MomentumArguments;

  absl::Status ReadAttributes(OpKernelConstruction* ctx) {
    return ctx->GetAttr("nesterov", &nesterov_);
  }

  absl::Status Read(const RowUpdateInputs& inputs, Arguments* arguments) const {
    if (inputs.num_slots() > 0) {
      TF_RETURN_IF_ERROR(inputs.FullSlot(0, &arguments->momentum));
    }
    inputs.Scalar(0, &arguments->learning_rate);
    inputs.Scalar(1, &arguments->decay);
    inputs.Scalar(2, &arguments->weight_decay);
    arguments->nesterov = nesterov_;
    return absl::OkStatus();
  }

 private:
  bool nesterov_ = false;
};

// One step of an optimizer. Errors come before the first write.
template <class Reader>
class RowUpdateOp : public LargeoutOp {
 public:
  explicit RowUpdateOp(OpKernelConstruction* ctx) : LargeoutOp(ctx) {
    OP_REQUIRES_OK(ctx, reader_.ReadAttributes(ctx));
  }

  void Run(OpKernelContext* ctx) override {
    RowUpdateInputs inputs;
    OP_REQUIRES_OK(ctx, inputs.Read(ctx));
    for (int i = 0; i < inputs.variables().size(); ++i) {
      huge_pages_.Ask(*inputs.variables().tensor(i));
    }
    typename Reader::Arguments arguments{};
    arguments.variable = inputs.variable_data();
    OP_REQUIRES_OK(ctx, reader_.Read(inputs, &arguments));
    OP_REQUIRES_OK(ctx, CheckRowIds(inputs.ids(), inputs.num_rows()));
    const ParallelFor parallel = IntraOpParallel(ctx);
    UpdateRows(MergeRowIds(inputs.ids(), parallel), inputs.values(), inputs.dim(), arguments,
               parallel, inputs.rounded());
  }

 private:
  Reader reader_;
  HugePages huge_pages_;
};

// The outputs have one row per distinct id.
class MergeRowsOp : public LargeoutOp {
 public:
  using LargeoutOp::LargeoutOp;

  void Run(OpKernelContext* ctx) override {
    const Tensor &values = ctx->input(0), &ids = ctx->input(1);
    OP_REQUIRES_OK(ctx, CheckRowIdsShape(ids));
    OP_REQUIRES(ctx, values.dims() >= 1 && values.dim_size(0) == ids.NumElements(),
                WrongShape(values, "values", "[n, ...] for n = ", ids.NumElements(), " ids"));
    OP_REQUIRES_OK(ctx, CheckRowIds(ids, std::numeric_limits<int64_t>::max()));
    const ParallelFor parallel = IntraOpParallel(ctx);
    const MergedRows merged = MergeRowIds(ids, parallel);
    tensorflow::TensorShape shape = values.shape();
    OP_REQUIRES_OK(ctx, shape.SetDimWithStatus(0, merged.size()));
    Tensor *sums, *unique_ids;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, shape, &sums));
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 1, {merged.size()}, &unique_ids));
    if (merged.size() == 0) return;
    SumRows(merged, values.flat<float>().data(), sums->NumElements() / merged.size(),
            sums->flat<float>().data(), parallel);
    WithIds(*unique_ids,
            [&](auto* data) { std::copy(merged.ids.begin(), merged.ids.end(), data); });
  }
};

class CheckRowIdsOp : public LargeoutOp {
 public:
  using LargeoutOp::LargeoutOp;

  void Run(OpKernelContext* ctx) override {
    OP_REQUIRES_OK(ctx, CheckScalar(ctx->input(1), "num_rows"));
    OP_REQUIRES_OK(ctx, CheckRowIdsShape(ctx->input(0)));
    OP_REQUIRES_OK(ctx, CheckRowIds(ctx->input(0), ctx->input(1).scalar<int64_t>()()));
    ctx->set_output(0, ctx->input(0));
  }
};

REGISTER_KERNEL_BUILDER(Name("LargeoutRowAdam").Device(tensorflow::DEVICE_CPU),
                        RowUpdateOp<AdamReader>);
REGISTER_KERNEL_BUILDER(Name("LargeoutRowAdagrad").Device(tensorflow::DEVICE_CPU),
                        RowUpdateOp<AdagradReader<false>>);
REGISTER_KERNEL_BUILDER(Name("LargeoutRowRowwiseAdagrad").Device(tensorflow::DEVICE_CPU),
                        RowUpdateOp<AdagradReader<true>>);
REGISTER_KERNEL_BUILDER(Name("LargeoutRowMomentum").Device(tensorflow::DEVICE_CPU),
                        RowUpdateOp<MomentumReader>);
REGISTER_KERNEL_BUILDER(Name("LargeoutMergeRows").Device(tensorflow::DEVICE_CPU), MergeRowsOp);
REGISTER_KERNEL_BUILDER(Name("LargeoutCheckRowIds").Device(tensorflow::DEVICE_CPU),
                        CheckRowIdsOp);

}  // namespace
}  // namespace largeout
