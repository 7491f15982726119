#include <limits>

#include "custom_ops/core/candidates.h"
#include "custom_ops/kernels/intra_op_parallel.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace largeout {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShapeUtils;
using tensorflow::errors::InvalidArgument;

absl::Status CheckLogits(const Tensor& logits) {
  if (!TensorShapeUtils::IsMatrix(logits.shape()) ||
      logits.dim_size(1) > std::numeric_limits<int32_t>::max()) {
    return InvalidArgument("logits must be [batch, num_candidates], got ",
                           logits.shape().DebugString());
  }
  return absl::OkStatus();
}

absl::Status CheckRows(const Tensor& logits, const Tensor& rows, const char* name) {
  if (!TensorShapeUtils::IsMatrix(rows.shape()) || rows.dim_size(0) != logits.dim_size(0)) {
    return InvalidArgument(name, " must be [batch, num_labels] with batch ", logits.dim_size(0),
                           " as in the logits, got ", rows.shape().DebugString());
  }
  return absl::OkStatus();
}

absl::Status CheckColumns(const Tensor& logits, const Tensor& columns, const char* name) {
  const bool shared =
      TensorShapeUtils::IsVector(columns.shape()) && columns.dim_size(0) == logits.dim_size(1);
  if (!shared && columns.shape() != logits.shape()) {
    return InvalidArgument(
        name, " must be [num_candidates] or [batch, num_candidates] for logits ",
        logits.shape().DebugString(), ", got ", columns.shape().DebugString());
  }
  return absl::OkStatus();
}

Candidates MakeCandidates(const Tensor& logits, const Tensor& labels, const int64_t* ids,
                          bool shared) {
  return {labels.flat<int64_t>().data(),
          ids,
          logits.dim_size(0),
          labels.dim_size(1),
          logits.dim_size(1),
          shared};
}

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

class CorrectCandidateLogitsOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* ctx) override {
    const Tensor &logits = ctx->input(0), &counts = ctx->input(1);
    const Tensor &labels = ctx->input(2), &ids = ctx->input(3);
    OP_REQUIRES_OK(ctx, CheckLogits(logits));
    OP_REQUIRES_OK(ctx, CheckColumns(logits, counts, "log_expected_count"));
    OP_REQUIRES_OK(ctx, CheckRows(logits, labels, "labels"));
    OP_REQUIRES_OK(ctx, CheckColumns(logits, ids, "candidates"));
    Tensor* corrected = nullptr;
    OP_REQUIRES_OK(ctx,
                   ctx->forward_input_or_allocate_output({0}, 0, logits.shape(), &corrected));
    CorrectCandidateLogits(
        MakeCandidates(logits, labels, ids.flat<int64_t>().data(), ids.dims() == 1),
        logits.flat<float>().data(), counts.flat<float>().data(), counts.dims() == 2,
        std::numeric_limits<float>::lowest(), IntraOpParallel(ctx),
        corrected->flat<float>().data());
  }
};

class CandidateRanksOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* ctx) override {
    const Tensor &logits = ctx->input(0), &true_logits = ctx->input(1), &labels = ctx->input(2);
    OP_REQUIRES_OK(ctx, CheckLogits(logits));
    OP_REQUIRES_OK(ctx, CheckRows(logits, labels, "labels"));
    OP_REQUIRES(ctx, true_logits.shape() == labels.shape(),
                InvalidArgument("true_logits must have the shape of labels, ",
                                labels.shape().DebugString(), ", got ",
                                true_logits.shape().DebugString()));
    Tensor* ranks = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, labels.shape(), &ranks));
    CandidateRanks(MakeCandidates(logits, labels, nullptr, true), logits.flat<float>().data(),
                   true_logits.flat<float>().data(), IntraOpParallel(ctx),
                   ranks->flat<int64_t>().data());
  }
};

REGISTER_KERNEL_BUILDER(Name("LargeoutFillAccidentalHits").Device(tensorflow::DEVICE_CPU),
                        FillAccidentalHitsOp);
REGISTER_KERNEL_BUILDER(Name("LargeoutCorrectCandidateLogits").Device(tensorflow::DEVICE_CPU),
                        CorrectCandidateLogitsOp);
REGISTER_KERNEL_BUILDER(Name("LargeoutCandidateRanks").Device(tensorflow::DEVICE_CPU),
                        CandidateRanksOp);

}  // namespace
}  // namespace largeout
