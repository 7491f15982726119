// The ops on the logits of candidates, for every device.
//
// A Device has the functions of core/candidates/candidates.h and
// core/candidates/candidate_softmax.h as static functions that take the context first and
// return a status, and Copy.

#ifndef LARGEOUT_CUSTOM_OPS_KERNELS_CANDIDATE_OPS_H_
#define LARGEOUT_CUSTOM_OPS_KERNELS_CANDIDATE_OPS_H_

#include <limits>

#include "custom_ops/core/candidates/candidates.h"
#include "custom_ops/kernels/checks.h"
#include "custom_ops/kernels/largeout_op.h"

namespace largeout {

inline absl::Status CheckLogits(const tensorflow::Tensor& logits) {
  if (logits.dims() == 2 && logits.dim_size(1) <= std::numeric_limits<int32_t>::max()) {
    return absl::OkStatus();
  }
  return WrongShape(logits, "logits", "[batch, num_candidates]");
}

// Checks an input per candidate: one row for all examples, or one row per example.
inline absl::Status CheckColumns(const tensorflow::Tensor& logits,
                                 const tensorflow::Tensor& columns, const char* name) {
  const bool shared = columns.dims() == 1 && columns.dim_size(0) == logits.dim_size(1);
  if (shared || columns.shape() == logits.shape()) return absl::OkStatus();
  return WrongShape(columns, name, "[num_candidates] or [batch, num_candidates] for logits ",
                    logits.shape().DebugString());
}

// Inputs of the ops on shifted logits: logits, offsets, labels (or classes without effect),
// candidates.
inline absl::Status CheckShifted(tensorflow::OpKernelContext* ctx,
                                 const char* labels = "labels") {
  const tensorflow::Tensor& logits = ctx->input(0);
  TF_RETURN_IF_ERROR(CheckLogits(logits));
  TF_RETURN_IF_ERROR(CheckColumns(logits, ctx->input(1), "offsets"));
  TF_RETURN_IF_ERROR(CheckBatchMatrix(ctx->input(2), labels, logits.dim_size(0), "logits"));
  return CheckColumns(logits, ctx->input(3), "candidates");
}

// ids: [num_candidates] or [batch, num_candidates].
inline Candidates MakeCandidates(const tensorflow::Tensor& logits,
                                 const tensorflow::Tensor& labels,
                                 const tensorflow::Tensor& ids) {
  return {labels.flat<int64_t>().data(),
          ids.flat<int64_t>().data(),
          logits.dim_size(0),
          labels.dim_size(1),
          logits.dim_size(1),
          ids.dims() == 1};
}

inline Candidates ShiftedCandidates(tensorflow::OpKernelContext* ctx) {
  return MakeCandidates(ctx->input(0), ctx->input(2), ctx->input(3));
}

inline Offsets ShiftedOffsets(tensorflow::OpKernelContext* ctx) {
  return {ctx->input(1).flat<float>().data(), ctx->input(1).dims() == 2};
}

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
    OP_REQUIRES_OK(ctx, CheckBatchMatrix(labels, "labels", values.dim_size(0), "logits"));
    OP_REQUIRES_OK(ctx, CheckColumns(values, ids, "candidates"));
    tensorflow::Tensor* filled = nullptr;
    OP_REQUIRES_OK(ctx, ctx->forward_input_or_allocate_output({0}, 0, values.shape(), &filled));
    if (!filled->SharesBufferWith(values)) {
      OP_REQUIRES_OK(ctx, Device::Copy(ctx, values, filled));
    }
    OP_REQUIRES_OK(ctx, Device::FillAccidentalHits(ctx, MakeCandidates(values, labels, ids),
                                                   fill_, filled->flat<float>().data()));
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
    const int64_t batch = logits.dim_size(0);
    OP_REQUIRES_OK(ctx, CheckBatchVector(log_partition, "log_partition", batch, "logits"));
    OP_REQUIRES_OK(ctx, CheckBatchVector(d_log_partition, "d_log_partition", batch, "logits"));
    const Offsets offsets = ShiftedOffsets(ctx);
    tensorflow::Tensor *d_logits = nullptr, *d_offsets = nullptr;
    OP_REQUIRES_OK(ctx,
                   ctx->forward_input_or_allocate_output({0}, 0, logits.shape(), &d_logits));
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
    OP_REQUIRES_OK(ctx, CheckShifted(ctx, "no_effect"));
    const tensorflow::Tensor &logits = ctx->input(0), &labels = ctx->input(4),
                             &true_logits = ctx->input(5);
    OP_REQUIRES_OK(ctx, CheckBatchMatrix(labels, "labels", logits.dim_size(0), "logits"));
    OP_REQUIRES_OK(ctx, CheckSameShape(true_logits, "true_logits", labels, "labels"));
    tensorflow::Tensor* ranks = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, labels.shape(), &ranks));
    const RankedLabels ranked = {labels.flat<int64_t>().data(),
                                 true_logits.flat<float>().data(), labels.dim_size(1)};
    OP_REQUIRES_OK(ctx, Device::CandidateRanks(ctx, ShiftedCandidates(ctx),
                                               logits.flat<float>().data(), ShiftedOffsets(ctx),
                                               ranked, ranks->flat<int64_t>().data()));
  }
};

// Registers the ops with a Device for the TensorFlow device `name`.
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
