#include <limits>

#include "custom_ops/core/candidate_softmax.h"
#include "custom_ops/core/candidates.h"
#include "custom_ops/kernels/candidate_input.h"
#include "custom_ops/kernels/intra_op_parallel.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace largeout {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

class FillAccidentalHitsOp : public OpKernel {
 public:
  explicit FillAccidentalHitsOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
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
      filled->flat<float>() = values.flat<float>();
    }
    FillAccidentalHits(
        MakeCandidates(values, labels, ids.flat<int64_t>().data(), ids.dims() == 1), fill_,
        IntraOpParallel(ctx), filled->flat<float>().data());
  }

 private:
  float fill_;
};

class ShiftCandidateLogitsOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* ctx) override {
    OP_REQUIRES_OK(ctx, CheckShifted(ctx));
    const Tensor& logits = ctx->input(0);
    Tensor* shifted = nullptr;
    OP_REQUIRES_OK(ctx,
                   ctx->forward_input_or_allocate_output({0}, 0, logits.shape(), &shifted));
    ShiftCandidateLogits(ShiftedCandidates(ctx), logits.flat<float>().data(),
                         ShiftedOffsets(ctx), std::numeric_limits<float>::lowest(),
                         IntraOpParallel(ctx), shifted->flat<float>().data());
  }
};

class CandidateLogPartitionOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* ctx) override {
    OP_REQUIRES_OK(ctx, CheckShifted(ctx));
    Tensor* log_partition = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, {ctx->input(0).dim_size(0)}, &log_partition));
    CandidateLogPartition(ShiftedCandidates(ctx), ctx->input(0).flat<float>().data(),
                          ShiftedOffsets(ctx), IntraOpParallel(ctx),
                          log_partition->flat<float>().data());
  }
};

class CandidateLogPartitionGradOp : public OpKernel {
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
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, logits.shape(), &d_logits));
    if (offsets.per_row) {
      ctx->set_output(1, *d_logits);
    } else {
      OP_REQUIRES_OK(ctx, ctx->allocate_output(1, {logits.dim_size(1)}, &d_offsets));
    }
    CandidateLogPartitionGradient(ShiftedCandidates(ctx), logits.flat<float>().data(), offsets,
                                  log_partition.flat<float>().data(),
                                  d_log_partition.flat<float>().data(), IntraOpParallel(ctx),
                                  d_logits->flat<float>().data(),
                                  offsets.per_row ? nullptr : d_offsets->flat<float>().data());
  }
};

class CandidateRanksOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* ctx) override {
    const Tensor &logits = ctx->input(0), &true_logits = ctx->input(1), &labels = ctx->input(2);
    OP_REQUIRES_OK(ctx, CheckLogits(logits));
    OP_REQUIRES_OK(ctx, CheckRows(logits, labels, "labels"));
    OP_REQUIRES_OK(ctx, CheckTrueLogits(true_logits, labels));
    Tensor* ranks = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, labels.shape(), &ranks));
    CandidateRanks(MakeCandidates(logits, labels, nullptr, true), logits.flat<float>().data(),
                   true_logits.flat<float>().data(), IntraOpParallel(ctx),
                   ranks->flat<int64_t>().data());
  }
};

REGISTER_KERNEL_BUILDER(Name("LargeoutFillAccidentalHits").Device(tensorflow::DEVICE_CPU),
                        FillAccidentalHitsOp);
REGISTER_KERNEL_BUILDER(Name("LargeoutShiftCandidateLogits").Device(tensorflow::DEVICE_CPU),
                        ShiftCandidateLogitsOp);
REGISTER_KERNEL_BUILDER(Name("LargeoutCandidateLogPartition").Device(tensorflow::DEVICE_CPU),
                        CandidateLogPartitionOp);
REGISTER_KERNEL_BUILDER(
    Name("LargeoutCandidateLogPartitionGrad").Device(tensorflow::DEVICE_CPU),
    CandidateLogPartitionGradOp);
REGISTER_KERNEL_BUILDER(Name("LargeoutCandidateRanks").Device(tensorflow::DEVICE_CPU),
                        CandidateRanksOp);

}  // namespace
}  // namespace largeout
