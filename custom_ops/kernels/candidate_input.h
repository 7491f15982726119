// The inputs of the ops on the logits of candidates, for every device.

#ifndef LARGEOUT_CUSTOM_OPS_KERNELS_CANDIDATE_INPUT_H_
#define LARGEOUT_CUSTOM_OPS_KERNELS_CANDIDATE_INPUT_H_

#include <limits>

#include "custom_ops/core/candidates.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace largeout {

inline absl::Status CheckLogits(const tensorflow::Tensor& logits) {
  if (!tensorflow::TensorShapeUtils::IsMatrix(logits.shape()) ||
      logits.dim_size(1) > std::numeric_limits<int32_t>::max()) {
    return tensorflow::errors::InvalidArgument("logits must be [batch, num_candidates], got ",
                                               logits.shape().DebugString());
  }
  return absl::OkStatus();
}

inline absl::Status CheckRows(const tensorflow::Tensor& logits, const tensorflow::Tensor& rows,
                              const char* name) {
  if (!tensorflow::TensorShapeUtils::IsMatrix(rows.shape()) ||
      rows.dim_size(0) != logits.dim_size(0)) {
    return tensorflow::errors::InvalidArgument(name, " must be [batch, num_labels] with batch ",
                                               logits.dim_size(0), " as in the logits, got ",
                                               rows.shape().DebugString());
  }
  return absl::OkStatus();
}

inline absl::Status CheckColumns(const tensorflow::Tensor& logits,
                                 const tensorflow::Tensor& columns, const char* name) {
  const bool shared = tensorflow::TensorShapeUtils::IsVector(columns.shape()) &&
                      columns.dim_size(0) == logits.dim_size(1);
  if (!shared && columns.shape() != logits.shape()) {
    return tensorflow::errors::InvalidArgument(
        name, " must be [num_candidates] or [batch, num_candidates] for logits ",
        logits.shape().DebugString(), ", got ", columns.shape().DebugString());
  }
  return absl::OkStatus();
}

inline absl::Status CheckPerRow(const tensorflow::Tensor& logits,
                                const tensorflow::Tensor& values, const char* name) {
  if (!tensorflow::TensorShapeUtils::IsVector(values.shape()) ||
      values.dim_size(0) != logits.dim_size(0)) {
    return tensorflow::errors::InvalidArgument(name, " must be [batch] with batch ",
                                               logits.dim_size(0), " as in the logits, got ",
                                               values.shape().DebugString());
  }
  return absl::OkStatus();
}

inline absl::Status CheckTrueLogits(const tensorflow::Tensor& true_logits,
                                    const tensorflow::Tensor& labels) {
  if (true_logits.shape() != labels.shape()) {
    return tensorflow::errors::InvalidArgument("true_logits must have the shape of labels, ",
                                               labels.shape().DebugString(), ", got ",
                                               true_logits.shape().DebugString());
  }
  return absl::OkStatus();
}

inline Candidates MakeCandidates(const tensorflow::Tensor& logits,
                                 const tensorflow::Tensor& labels, const int64_t* ids,
                                 bool shared) {
  return {labels.flat<int64_t>().data(),
          ids,
          logits.dim_size(0),
          labels.dim_size(1),
          logits.dim_size(1),
          shared};
}

// Inputs of the ops on shifted logits: logits, offsets, labels, candidates.
inline absl::Status CheckShifted(tensorflow::OpKernelContext* ctx) {
  const tensorflow::Tensor& logits = ctx->input(0);
  TF_RETURN_IF_ERROR(CheckLogits(logits));
  TF_RETURN_IF_ERROR(CheckColumns(logits, ctx->input(1), "offsets"));
  TF_RETURN_IF_ERROR(CheckRows(logits, ctx->input(2), "labels"));
  return CheckColumns(logits, ctx->input(3), "candidates");
}

inline Candidates ShiftedCandidates(tensorflow::OpKernelContext* ctx) {
  const tensorflow::Tensor& ids = ctx->input(3);
  return MakeCandidates(ctx->input(0), ctx->input(2), ids.flat<int64_t>().data(),
                        ids.dims() == 1);
}

inline Offsets ShiftedOffsets(tensorflow::OpKernelContext* ctx) {
  return {ctx->input(1).flat<float>().data(), ctx->input(1).dims() == 2};
}

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_KERNELS_CANDIDATE_INPUT_H_
