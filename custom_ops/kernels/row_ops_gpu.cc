#include <limits>

#include "custom_ops/cuda/row_update.h"
#include "custom_ops/kernels/gpu_context.h"
#include "custom_ops/kernels/largeout_op.h"
#include "custom_ops/kernels/row_update_arguments.h"
#include "custom_ops/kernels/row_update_op.h"

namespace largeout {
namespace {

using tensorflow::DEVICE_GPU;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

// Queues the merge of `ids`, whose result stands in `scratch`. dim: that of the gradients.
absl::Status MergeOnGpu(OpKernelContext* ctx, const Tensor& ids, int64_t num_rows, int64_t dim,
                        GpuScratch* scratch, cuda::MergedRows* merged) {
  const int64_t n = ids.NumElements();
  TF_RETURN_IF_ERROR(scratch->Allocate(ctx, cuda::MergeRowsScratchBytes(n, num_rows, dim)));
  return FromCuda(ids.dtype() == tensorflow::DT_INT64
                      ? cuda::MergeRows(ids.flat<int64_t>().data(), n, num_rows, dim,
                                        scratch->data(), merged, StreamOf(ctx))
                      : cuda::MergeRows(ids.flat<int32_t>().data(), n, num_rows, dim,
                                        scratch->data(), merged, StreamOf(ctx)));
}

class RowUpdateGpuOp : public RowUpdateOp {
 public:
  using RowUpdateOp::RowUpdateOp;

 protected:
  template <class Arguments>
  static absl::Status Step(const RowUpdateInputs& inputs, const Arguments& arguments) {
    GpuScratch scratch;
    cuda::MergedRows merged;
    TF_RETURN_IF_ERROR(MergeOnGpu(inputs.ctx, inputs.ids(), inputs.num_rows(), inputs.dim(),
                                  &scratch, &merged));
    return FromCuda(cuda::UpdateRows(merged, inputs.values(), inputs.dim(), arguments,
                                     StreamOf(inputs.ctx)));
  }

  absl::Status Copy(OpKernelContext* ctx, const Tensor& from, Tensor* to) final {
    return FromCuda(cuda::CopyBytes(from.data(), static_cast<int64_t>(from.TotalBytes()),
                                    to->data(), StreamOf(ctx)));
  }
};

// The outputs have a row for each id: the host does not know how many are unique.
class MergeRowsGpuOp : public LargeoutOp {
 public:
  using LargeoutOp::LargeoutOp;

  void Run(OpKernelContext* ctx) override {
    const Tensor& values = ctx->input(0);
    const Tensor& ids = ctx->input(1);
    OP_REQUIRES_OK(ctx, CheckRowIdsShape(ids));
    OP_REQUIRES(ctx, values.dims() >= 1 && values.dim_size(0) == ids.NumElements(),
                absl::InvalidArgumentError(
                    absl::StrCat("values must have shape [n, ...] for n = ", ids.NumElements(),
                                 " ids, but has ", values.shape().DebugString())));
    Tensor* sums = nullptr;
    Tensor* unique_ids = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, values.shape(), &sums));
    OP_REQUIRES_OK(ctx, ctx->allocate_output(1, ids.shape(), &unique_ids));
    if (ids.NumElements() == 0) return;
    OP_REQUIRES_OK(ctx, ids.dtype() == tensorflow::DT_INT64
                            ? Sum<int64_t>(ctx, values, ids, sums, unique_ids)
                            : Sum<int32_t>(ctx, values, ids, sums, unique_ids));
  }

 private:
  template <class Index>
  static absl::Status Sum(OpKernelContext* ctx, const Tensor& values, const Tensor& ids,
                          Tensor* sums, Tensor* unique_ids) {
    const int64_t dim = values.NumElements() / ids.NumElements();
    GpuScratch scratch;
    cuda::MergedRows merged;
    TF_RETURN_IF_ERROR(
        MergeOnGpu(ctx, ids, std::numeric_limits<Index>::max(), dim, &scratch, &merged));
    return FromCuda(cuda::SumRows(merged, values.flat<float>().data(), dim,
                                  sums->flat<float>().data(), unique_ids->flat<Index>().data(),
                                  StreamOf(ctx)));
  }
};

// The host cannot look at the ids without waiting, so they go on as they are. What takes
// them afterwards skips those that are no rows.
class CheckRowIdsGpuOp : public LargeoutOp {
 public:
  using LargeoutOp::LargeoutOp;

  void Run(OpKernelContext* ctx) override {
    OP_REQUIRES_OK(ctx, CheckRowIdsShape(ctx->input(0)));
    ctx->set_output(0, ctx->input(0));
  }
};

using AdamOp = RowAdamOp<RowUpdateGpuOp, cuda::AdamStep>;
using AdagradOp = RowAdagradOp<RowUpdateGpuOp, cuda::AdagradStep, false>;
using RowwiseAdagradOp = RowAdagradOp<RowUpdateGpuOp, cuda::RowwiseAdagradStep, true>;
using MomentumOp = RowMomentumOp<RowUpdateGpuOp, cuda::MomentumStep>;

REGISTER_KERNEL_BUILDER(Name("LargeoutRowAdam").Device(DEVICE_GPU), AdamOp);
REGISTER_KERNEL_BUILDER(Name("LargeoutRowAdagrad").Device(DEVICE_GPU), AdagradOp);
REGISTER_KERNEL_BUILDER(Name("LargeoutRowRowwiseAdagrad").Device(DEVICE_GPU), RowwiseAdagradOp);
REGISTER_KERNEL_BUILDER(Name("LargeoutRowMomentum").Device(DEVICE_GPU), MomentumOp);
REGISTER_KERNEL_BUILDER(Name("LargeoutMergeRows").Device(DEVICE_GPU), MergeRowsGpuOp);
REGISTER_KERNEL_BUILDER(Name("LargeoutCheckRowIds").Device(DEVICE_GPU).HostMemory("num_rows"),
                        CheckRowIdsGpuOp);

}  // namespace
}  // namespace largeout
