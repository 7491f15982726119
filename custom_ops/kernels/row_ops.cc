#include "custom_ops/kernels/row_ops.h"

#include <algorithm>

#include "custom_ops/core/optimizers/row_update.h"
#include "custom_ops/kernels/intra_op_parallel.h"

namespace largeout {
namespace {

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

struct CpuRow {
  using Adam = AdamArguments;
  using Adagrad = AdagradArguments;
  using RowwiseAdagrad = RowwiseAdagradArguments;
  using Momentum = MomentumArguments;

  static constexpr bool kUsesHugePages = true;
  static constexpr bool kRounds = true;

  static absl::Status CheckIds(const Tensor& ids, int64_t num_rows) {
    return WithIds(ids, [&](const auto* data) {
      const int64_t bad = FindIdOutOfRange(data, ids.NumElements(), num_rows);
      if (bad < 0) return absl::OkStatus();
      return absl::InvalidArgumentError(absl::StrCat(
          "ids[", bad, "] = ", data[bad], " is not a row: expected 0 <= id < ", num_rows));
    });
  }

  static absl::Status Copy(OpKernelContext*, const Tensor& from, Tensor* to) {
    return CopyOnHost(from, to);
  }

  template <class Arguments>
  static absl::Status Update(const RowUpdateInputs& inputs, const Arguments& arguments) {
    const ParallelFor parallel_for = IntraOpParallel(inputs.ctx);
    UpdateRows(MergeRowIds(inputs.ids(), parallel_for), inputs.values(), inputs.dim(),
               arguments, parallel_for, inputs.rounded());
    return absl::OkStatus();
  }

  // The outputs have one row per distinct id.
  static absl::Status Merge(OpKernelContext* ctx, const Tensor& values, const Tensor& ids) {
    const ParallelFor parallel_for = IntraOpParallel(ctx);
    const MergedRows merged = MergeRowIds(ids, parallel_for);
    tensorflow::TensorShape shape = values.shape();
    TF_RETURN_IF_ERROR(shape.SetDimWithStatus(0, merged.size()));
    Tensor *sums, *unique_ids;
    TF_RETURN_IF_ERROR(ctx->allocate_output(0, shape, &sums));
    TF_RETURN_IF_ERROR(AllocateOutput(ctx, 1, {merged.size()}, &unique_ids));
    if (merged.size() == 0) return absl::OkStatus();
    SumRows(merged, values.flat<float>().data(), sums->NumElements() / merged.size(),
            sums->flat<float>().data(), parallel_for);
    WithIds(*unique_ids,
            [&](auto* data) { std::copy(merged.ids.begin(), merged.ids.end(), data); });
    return absl::OkStatus();
  }
};

LARGEOUT_REGISTER_ROW_OPS(tensorflow::DEVICE_CPU, CpuRow);

}  // namespace
}  // namespace largeout
