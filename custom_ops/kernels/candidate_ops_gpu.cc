#include <limits>

#include "custom_ops/cuda/candidates.h"
#include "custom_ops/kernels/candidate_input.h"
#include "custom_ops/kernels/gpu_context.h"

namespace largeout {
namespace {

using tensorflow::DEVICE_GPU;
using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

class FillAccidentalHitsGpuOp : public OpKernel {
 public:
  explicit FillAccidentalHitsGpuOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("fill", &fill_));
  }

  void Compute(OpKernelContext* ctx) override {
    const Tensor &values = ctx->input(0), &labels = ctx->input(1), &ids = ctx->input(2);
    OP_REQUIRES_OK(ctx, CheckLogits(values));
    OP_REQUIRES_OK(ctx, CheckRows(values, labels, "labels"));
    OP_REQUIRES_OK(ctx, CheckColumns(values, ids, "candidates"));
    Tensor* filled = nullptr;
    OP_REQUIRES_OK(ctx, ctx->forward_input_or_allocate_output({0}, 0, values.shape(), &filled));
    if (!filled->SharesBufferWith(values)) {
      OP_REQUIRES_OK(ctx, FromCuda(cuda::CopyBytes(values.data(),
                                                   static_cast<int64_t>(values.TotalBytes()),
                                                   filled->data(), StreamOf(ctx))));
    }
    const Candidates candidates =
        MakeCandidates(values, labels, ids.flat<int64_t>().data(), ids.dims() == 1);
    OP_REQUIRES_OK(ctx, FromCuda(cuda::FillAccidentalHits(
                            candidates, fill_, filled->flat<float>().data(), StreamOf(ctx))));
  }

 private:
  float fill_;
};

class ShiftCandidateLogitsGpuOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* ctx) override {
    OP_REQUIRES_OK(ctx, CheckShifted(ctx));
    const Tensor& logits = ctx->input(0);
    Tensor* shifted = nullptr;
    OP_REQUIRES_OK(ctx,
                   ctx->forward_input_or_allocate_output({0}, 0, logits.shape(), &shifted));
    OP_REQUIRES_OK(ctx, FromCuda(cuda::ShiftCandidateLogits(
                            ShiftedCandidates(ctx), logits.flat<float>().data(),
                            ShiftedOffsets(ctx), std::numeric_limits<float>::lowest(),
                            shifted->flat<float>().data(), StreamOf(ctx))));
  }
};

class CandidateLogPartitionGpuOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* ctx) override {
    OP_REQUIRES_OK(ctx, CheckShifted(ctx));
    const Tensor& logits = ctx->input(0);
    Tensor* log_partition = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, {logits.dim_size(0)}, &log_partition));
    OP_REQUIRES_OK(ctx,
                   FromCuda(cuda::CandidateLogPartition(
                       ShiftedCandidates(ctx), logits.flat<float>().data(), ShiftedOffsets(ctx),
                       log_partition->flat<float>().data(), StreamOf(ctx))));
  }
};

class CandidateLogPartitionGradGpuOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* ctx) override {
    OP_REQUIRES_OK(ctx, CheckShifted(ctx));
    const Tensor &logits = ctx->input(0), &log_partition = ctx->input(4);
    const Tensor& d_log_partition = ctx->input(5);
    OP_REQUIRES_OK(ctx, CheckPerRow(logits, log_partition, "log_partition"));
    OP_REQUIRES_OK(ctx, CheckPerRow(logits, d_log_partition, "d_log_partition"));
    const Offsets offsets = ShiftedOffsets(ctx);
    Tensor *d_logits = nullptr, *d_offsets = nullptr;
    GpuScratch scratch;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, logits.shape(), &d_logits));
    if (offsets.per_row) {
      ctx->set_output(1, *d_logits);
    } else {
      OP_REQUIRES_OK(ctx, ctx->allocate_output(1, {logits.dim_size(1)}, &d_offsets));
      OP_REQUIRES_OK(ctx, scratch.Allocate(ctx, cuda::ColumnSumsScratchBytes(
                                                    logits.dim_size(0), logits.dim_size(1))));
    }
    OP_REQUIRES_OK(
        ctx, FromCuda(cuda::CandidateLogPartitionGradient(
                 ShiftedCandidates(ctx), logits.flat<float>().data(), offsets,
                 log_partition.flat<float>().data(), d_log_partition.flat<float>().data(),
                 scratch.data(), d_logits->flat<float>().data(),
                 offsets.per_row ? nullptr : d_offsets->flat<float>().data(), StreamOf(ctx))));
  }
};

class CandidateRanksGpuOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* ctx) override {
    const Tensor &logits = ctx->input(0), &true_logits = ctx->input(1), &labels = ctx->input(2);
    OP_REQUIRES_OK(ctx, CheckLogits(logits));
    OP_REQUIRES_OK(ctx, CheckRows(logits, labels, "labels"));
    OP_REQUIRES_OK(ctx, CheckTrueLogits(true_logits, labels));
    Tensor* ranks = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, labels.shape(), &ranks));
    OP_REQUIRES_OK(ctx, FromCuda(cuda::CandidateRanks(
                            MakeCandidates(logits, labels, nullptr, true),
                            logits.flat<float>().data(), true_logits.flat<float>().data(),
                            ranks->flat<int64_t>().data(), StreamOf(ctx))));
  }
};

REGISTER_KERNEL_BUILDER(Name("LargeoutFillAccidentalHits").Device(DEVICE_GPU),
                        FillAccidentalHitsGpuOp);
REGISTER_KERNEL_BUILDER(Name("LargeoutShiftCandidateLogits").Device(DEVICE_GPU),
                        ShiftCandidateLogitsGpuOp);
REGISTER_KERNEL_BUILDER(Name("LargeoutCandidateLogPartition").Device(DEVICE_GPU),
                        CandidateLogPartitionGpuOp);
REGISTER_KERNEL_BUILDER(Name("LargeoutCandidateLogPartitionGrad").Device(DEVICE_GPU),
                        CandidateLogPartitionGradGpuOp);
REGISTER_KERNEL_BUILDER(Name("LargeoutCandidateRanks").Device(DEVICE_GPU), CandidateRanksGpuOp);

}  // namespace
}  // namespace largeout
