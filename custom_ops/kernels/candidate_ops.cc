// The ops on the logits of candidates.

#include <limits>

#include "custom_ops/core/candidates/candidate_softmax.h"
#include "custom_ops/core/candidates/candidates.h"
#include "custom_ops/kernels/checks.h"
#include "custom_ops/kernels/intra_op_parallel.h"
#include "custom_ops/kernels/largeout_op.h"

namespace largeout {
namespace {

using tensorflow::OpKernelContext;
using tensorflow::Tensor;

absl::Status CheckLogits(const Tensor& logits) {
  if (logits.dims() == 2 && logits.dim_size(1) <= std::numeric_limits<int32_t>::max()) {
    return absl::OkStatus();
  }
  return WrongShape(logits, "logits", "[batch, num_candidates]");
}

// Checks an input per candidate: one row for all examples, or one row per example.
absl::Status CheckColumns(const Tensor& logits, const Tensor& columns, const char* name) {
  const bool shared = columns.dims() == 1 && columns.dim_size(0) == logits.dim_size(1);
  if (shared || columns.shape() == logits.shape()) return absl::OkStatus();
  return WrongShape(columns, name, "[num_candidates] or [batch, num_candidates] for logits ",
                    logits.shape().DebugString());
}

// ids: [num_candidates] or [batch, num_candidates].
Candidates MakeCandidates(const Tensor& logits, const Tensor& labels, const Tensor& ids) {
  return {labels.flat<int64_t>().data(),
          ids.flat<int64_t>().data(),
          logits.dim_size(0),
          labels.dim_size(1),
          logits.dim_size(1),
          ids.dims() == 1};
}

// The inputs of the ops on shifted logits: logits, offsets, labels (or classes without effect),
// candidates.
struct ShiftedInput {
  absl::Status Read(OpKernelContext* ctx, const char* labels = "labels") {
    const Tensor &logits = ctx->input(0), &shifts = ctx->input(1);
    TF_RETURN_IF_ERROR(CheckLogits(logits));
    TF_RETURN_IF_ERROR(CheckColumns(logits, shifts, "offsets"));
    TF_RETURN_IF_ERROR(CheckBatchMatrix(ctx->input(2), labels, logits.dim_size(0), "logits"));
    TF_RETURN_IF_ERROR(CheckColumns(logits, ctx->input(3), "candidates"));
    this->logits = logits.flat<float>().data();
    offsets = {shifts.flat<float>().data(), shifts.dims() == 2};
    candidates = MakeCandidates(logits, ctx->input(2), ctx->input(3));
    return absl::OkStatus();
  }

  const float* logits;
  Offsets offsets;
  Candidates candidates;
};

class FillAccidentalHitsOp : public LargeoutOp {
 public:
  explicit FillAccidentalHitsOp(tensorflow::OpKernelConstruction* ctx) : LargeoutOp(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("fill", &fill_));
  }

  void Run(OpKernelContext* ctx) override {
    const Tensor &values = ctx->input(0), &labels = ctx->input(1), &ids = ctx->input(2);
    OP_REQUIRES_OK(ctx, CheckLogits(values));
    OP_REQUIRES_OK(ctx, CheckBatchMatrix(labels, "labels", values.dim_size(0), "logits"));
    OP_REQUIRES_OK(ctx, CheckColumns(values, ids, "candidates"));
    Tensor* filled = nullptr;
    OP_REQUIRES_OK(ctx, ctx->forward_input_or_allocate_output({0}, 0, values.shape(), &filled));
    if (!filled->SharesBufferWith(values)) filled->flat<float>() = values.flat<float>();
    FillAccidentalHits(MakeCandidates(values, labels, ids), fill_, IntraOpParallel(ctx),
                       filled->flat<float>().data());
  }

 private:
  float fill_;
};

class ShiftCandidateLogitsOp : public LargeoutOp {
 public:
  using LargeoutOp::LargeoutOp;

  void Run(OpKernelContext* ctx) override {
    ShiftedInput in;
    OP_REQUIRES_OK(ctx, in.Read(ctx));
    Tensor* shifted = nullptr;
    OP_REQUIRES_OK(
        ctx, ctx->forward_input_or_allocate_output({0}, 0, ctx->input(0).shape(), &shifted));
    ShiftCandidateLogits(in.candidates, in.logits, in.offsets,
                         std::numeric_limits<float>::lowest(), IntraOpParallel(ctx),
                         shifted->flat<float>().data());
  }
};

class CandidateLogPartitionOp : public LargeoutOp {
 public:
  using LargeoutOp::LargeoutOp;

  void Run(OpKernelContext* ctx) override {
    ShiftedInput in;
    OP_REQUIRES_OK(ctx, in.Read(ctx));
    Tensor* log_partition = nullptr;
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 0, {in.candidates.batch}, &log_partition));
    CandidateLogPartition(in.candidates, in.logits, in.offsets, IntraOpParallel(ctx),
                          log_partition->flat<float>().data());
  }
};

class CandidateLogPartitionGradOp : public LargeoutOp {
 public:
  using LargeoutOp::LargeoutOp;

  void Run(OpKernelContext* ctx) override {
    ShiftedInput in;
    OP_REQUIRES_OK(ctx, in.Read(ctx));
    const Tensor &log_partition = ctx->input(4), &d_log_partition = ctx->input(5);
    const int64_t batch = in.candidates.batch;
    OP_REQUIRES_OK(ctx, CheckBatchVector(log_partition, "log_partition", batch, "logits"));
    OP_REQUIRES_OK(ctx, CheckBatchVector(d_log_partition, "d_log_partition", batch, "logits"));
    Tensor *d_logits = nullptr, *d_offsets = nullptr;
    OP_REQUIRES_OK(
        ctx, ctx->forward_input_or_allocate_output({0}, 0, ctx->input(0).shape(), &d_logits));
    if (in.offsets.per_row) {
      ctx->set_output(1, *d_logits);
    } else {
      OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 1, {in.candidates.num_candidates}, &d_offsets));
    }
    CandidateLogPartitionGradient(
        in.candidates, in.logits, in.offsets, log_partition.flat<float>().data(),
        d_log_partition.flat<float>().data(), IntraOpParallel(ctx),
        d_logits->flat<float>().data(),
        in.offsets.per_row ? nullptr : d_offsets->flat<float>().data());
  }
};

class CandidateRanksOp : public LargeoutOp {
 public:
  using LargeoutOp::LargeoutOp;

  void Run(OpKernelContext* ctx) override {
    ShiftedInput in;
    OP_REQUIRES_OK(ctx, in.Read(ctx, "no_effect"));
    const Tensor &labels = ctx->input(4), &true_logits = ctx->input(5);
    OP_REQUIRES_OK(ctx, CheckBatchMatrix(labels, "labels", in.candidates.batch, "logits"));
    OP_REQUIRES_OK(ctx, CheckSameShape(true_logits, "true_logits", labels, "labels"));
    Tensor* ranks = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, labels.shape(), &ranks));
    const RankedLabels ranked = {labels.flat<int64_t>().data(),
                                 true_logits.flat<float>().data(), labels.dim_size(1)};
    CandidateRanks(in.candidates, in.logits, in.offsets, ranked, IntraOpParallel(ctx),
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
