#include "custom_ops/cuda/row_update.h"
#include "custom_ops/kernels/gpu_context.h"
#include "custom_ops/kernels/row_ops.h"

namespace largeout {
namespace {

using tensorflow::DT_INT64;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

// Queues the merge of `ids` into `scratch`. dim: of the gradients.
absl::Status MergeOnGpu(OpKernelContext* ctx, const Tensor& ids, int64_t num_rows, int64_t dim,
                        GpuScratch* scratch, cuda::MergedRows* merged) {
  const int64_t n = ids.NumElements();
  TF_RETURN_IF_ERROR(scratch->Allocate(ctx, cuda::MergeRowsScratchBytes(n, num_rows, dim)));
  return FromCuda(ids.dtype() == DT_INT64
                      ? cuda::MergeRows(ids.flat<int64_t>().data(), n, num_rows, dim,
                                        scratch->data(), merged, StreamOf(ctx))
                      : cuda::MergeRows(ids.flat<int32_t>().data(), n, num_rows, dim,
                                        scratch->data(), merged, StreamOf(ctx)));
}

struct GpuRow {
  using Adam = cuda::AdamStep;
  using Adagrad = cuda::AdagradStep;
  using RowwiseAdagrad = cuda::RowwiseAdagradStep;
  using Momentum = cuda::MomentumStep;

  static constexpr bool kUsesHugePages = false;
  static constexpr bool kRounds = false;

  // The host cannot read the ids without waiting. The launchers skip ids that are out of range.
  static absl::Status CheckIds(const Tensor&, int64_t) { return absl::OkStatus(); }

  static absl::Status Copy(OpKernelContext* ctx, const Tensor& from, Tensor* to) {
    return CopyTensor(ctx, from, to);
  }

  template <class Arguments>
  static absl::Status Update(const RowUpdateInputs& inputs, const Arguments& arguments) {
    GpuScratch scratch;
    cuda::MergedRows merged;
    TF_RETURN_IF_ERROR(MergeOnGpu(inputs.ctx, inputs.ids(), inputs.num_rows(), inputs.dim(),
                                  &scratch, &merged));
    return FromCuda(cuda::UpdateRows(merged, inputs.values(), inputs.dim(), arguments,
                                     StreamOf(inputs.ctx)));
  }

  // The outputs have one row per id: the host does not know how many ids are distinct.
  static absl::Status Merge(OpKernelContext* ctx, const Tensor& values, const Tensor& ids) {
    Tensor *sums, *unique_ids;
    TF_RETURN_IF_ERROR(ctx->allocate_output(0, values.shape(), &sums));
    TF_RETURN_IF_ERROR(ctx->allocate_output(1, ids.shape(), &unique_ids));
    if (ids.NumElements() == 0) return absl::OkStatus();
    return ids.dtype() == DT_INT64 ? Sum<int64_t>(ctx, values, ids, sums, unique_ids)
                                   : Sum<int32_t>(ctx, values, ids, sums, unique_ids);
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

LARGEOUT_REGISTER_ROW_OPS(GpuDeviceType(), GpuRow);

}  // namespace
}  // namespace largeout
