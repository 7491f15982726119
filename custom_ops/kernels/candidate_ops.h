// The ops on the logits of candidates, for every device.
//
// A Device has the functions of core/candidates.h and core/candidate_softmax.h as static
// functions that take the context first and return a status, and Copy.

#ifndef LARGEOUT_CUSTOM_OPS_KERNELS_CANDIDATE_OPS_H_
#define LARGEOUT_CUSTOM_OPS_KERNELS_CANDIDATE_OPS_H_

#include <limits>

#include "custom_ops/kernels/candidate_input.h"
#include "custom_ops/kernels/largeout_op.h"

namespace largeout {

template <class Device>
class FillAccidentalHitsOp : public LargeoutOp {
 public:
  explicit FillAccidentalHitsOp(tensorflow::OpKernelConstruction* ctx) : LargeoutOp(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("fill", &fill_));
  }

  void Run(tensorflow::OpKernelContext* ctx) override {
    const tensorflow::Tensor &values = ctx->input(0), &labels = ctx->input(1),
                             &ids = ctx->input(2);
    OP_REQUIRES_OK(ctx, CheckLogits(values));
    OP_REQUIRES_OK(ctx, CheckRows(values, labels, "labels"));
    OP_REQUIRES_OK(ctx, CheckColumns(values, ids, "candidates"));
    tensorflow::Tensor* filled = nullptr;
    OP_REQUIRES_OK(ctx, ctx->forward_input_or_allocate_output({0}, 0, values.shape(), &filled));
    if (!filled->SharesBufferWith(values)) {
      OP_REQUIRES_OK(ctx, Device::Copy(ctx, values, filled));
    }
    const Candidates candidates =
        MakeCandidates(values, labels, ids.flat<int64_t>().data(), ids.dims() == 1);
    OP_REQUIRES_OK(
        ctx, Device::FillAccidentalHits(ctx, candidates, fill_, filled->flat<float>().data()));
  }

 private:
  float fill_;
};

template <class Device>
class ShiftCandidateLogitsOp : public LargeoutOp {
 public:
  using LargeoutOp::LargeoutOp;

  void Run(tensorflow::OpKernelContext* ctx) override {
    OP_REQUIRES_OK(ctx, CheckShifted(ctx));
    const tensorflow::Tensor& logits = ctx->input(0);
    tensorflow::Tensor* shifted = nullptr;
    OP_REQUIRES_OK(ctx,
                   ctx->forward_input_or_allocate_output({0}, 0, logits.shape(), &shifted));
    OP_REQUIRES_OK(
        ctx, Device::ShiftCandidateLogits(
                 ctx, ShiftedCandidates(ctx), logits.flat<float>().data(), ShiftedOffsets(ctx),
                 std::numeric_limits<float>::lowest(), shifted->flat<float>().data()));
  }
};

template <class Device>
class CandidateLogPartitionOp : public LargeoutOp {
 public:
  using LargeoutOp::LargeoutOp;

  void Run(tensorflow::OpKernelContext* ctx) override {
    OP_REQUIRES_OK(ctx, CheckShifted(ctx));
    tensorflow::Tensor* log_partition = nullptr;
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 0, {ctx->input(0).dim_size(0)}, &log_partition));
    OP_REQUIRES_OK(ctx, Device::CandidateLogPartition(
                            ctx, ShiftedCandidates(ctx), ctx->input(0).flat<float>().data(),
                            ShiftedOffsets(ctx), log_partition->flat<float>().data()));
  }
};

template <class Device>
class CandidateLogPartitionGradOp : public LargeoutOp {
 public:
  using LargeoutOp::LargeoutOp;

  void Run(tensorflow::OpKernelContext* ctx) override {
    OP_REQUIRES_OK(ctx, CheckShifted(ctx));
    const tensorflow::Tensor &logits = ctx->input(0), &log_partition = ctx->input(4);
    const tensorflow::Tensor& d_log_partition = ctx->input(5);
    OP_REQUIRES_OK(ctx, CheckPerRow(logits, log_partition, "log_partition"));
    OP_REQUIRES_OK(ctx, CheckPerRow(logits, d_log_partition, "d_log_partition"));
    const Offsets offsets = ShiftedOffsets(ctx);
    tensorflow::Tensor *d_logits = nullptr, *d_offsets = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, logits.shape(), &d_logits));
    if (offsets.per_row) {
      ctx->set_output(1, *d_logits);
    } else {
      OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 1, {logits.dim_size(1)}, &d_offsets));
    }
    OP_REQUIRES_OK(ctx,
                   Device::CandidateLogPartitionGradient(
                       ctx, ShiftedCandidates(ctx), logits.flat<float>().data(), offsets,
                       log_partition.flat<float>().data(), d_log_partition.flat<float>().data(),
                       d_logits->flat<float>().data(),
                       offsets.per_row ? nullptr : d_offsets->flat<float>().data()));
  }
};

template <class Device>
class CandidateRanksOp : public LargeoutOp {
 public:
  using LargeoutOp::LargeoutOp;

  void Run(tensorflow::OpKernelContext* ctx) override {
    const tensorflow::Tensor &logits = ctx->input(0), &true_logits = ctx->input(1),
                             &labels = ctx->input(2);
    OP_REQUIRES_OK(ctx, CheckLogits(logits));
    OP_REQUIRES_OK(ctx, CheckRows(logits, labels, "labels"));
    OP_REQUIRES_OK(ctx, CheckTrueLogits(true_logits, labels));
    tensorflow::Tensor* ranks = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, labels.shape(), &ranks));
    OP_REQUIRES_OK(ctx, Device::CandidateRanks(
                            ctx, MakeCandidates(logits, labels, nullptr, true),
                            logits.flat<float>().data(), true_logits.flat<float>().data(),
                            ranks->flat<int64_t>().data()));
  }
};

// Registers the ops with a Device for TensorFlow's device of that name.
#define LARGEOUT_REGISTER_CANDIDATE_OPS(name, Functions)                          \
  REGISTER_KERNEL_BUILDER(Name("LargeoutFillAccidentalHits").Device(name),        \
                          FillAccidentalHitsOp<Functions>);                       \
  REGISTER_KERNEL_BUILDER(Name("LargeoutShiftCandidateLogits").Device(name),      \
                          ShiftCandidateLogitsOp<Functions>);                     \
  REGISTER_KERNEL_BUILDER(Name("LargeoutCandidateLogPartition").Device(name),     \
                          CandidateLogPartitionOp<Functions>);                    \
  REGISTER_KERNEL_BUILDER(Name("LargeoutCandidateLogPartitionGrad").Device(name), \
                          CandidateLogPartitionGradOp<Functions>);                \
  REGISTER_KERNEL_BUILDER(Name("LargeoutCandidateRanks").Device(name),            \
                          CandidateRanksOp<Functions>)

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_KERNELS_CANDIDATE_OPS_H_
