#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace largeout {
namespace {

using tensorflow::shape_inference::DimensionHandle;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

// candidates is [num_candidates] or [batch, num_candidates]; it must match `logits`.
absl::Status MergeCandidates(InferenceContext* c, ShapeHandle logits, int index) {
  ShapeHandle shape;
  TF_RETURN_IF_ERROR(c->WithRankAtLeast(c->input(index), 1, &shape));
  TF_RETURN_IF_ERROR(c->WithRankAtMost(shape, 2, &shape));
  if (!c->RankKnown(shape)) return absl::OkStatus();
  DimensionHandle unused;
  TF_RETURN_IF_ERROR(c->Merge(c->Dim(shape, -1), c->Dim(logits, 1), &unused));
  if (c->Rank(shape) == 1) return absl::OkStatus();
  return c->Merge(c->Dim(shape, 0), c->Dim(logits, 0), &unused);
}

absl::Status MergeRows(InferenceContext* c, ShapeHandle logits, int index) {
  ShapeHandle shape;
  DimensionHandle unused;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(index), 2, &shape));
  return c->Merge(c->Dim(shape, 0), c->Dim(logits, 0), &unused);
}

absl::Status FillShape(InferenceContext* c) {
  ShapeHandle logits;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 2, &logits));
  TF_RETURN_IF_ERROR(MergeRows(c, logits, 1));
  TF_RETURN_IF_ERROR(MergeCandidates(c, logits, 2));
  c->set_output(0, logits);
  return absl::OkStatus();
}

absl::Status ShiftShape(InferenceContext* c) {
  ShapeHandle logits;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 2, &logits));
  TF_RETURN_IF_ERROR(MergeCandidates(c, logits, 1));
  TF_RETURN_IF_ERROR(MergeRows(c, logits, 2));
  TF_RETURN_IF_ERROR(MergeCandidates(c, logits, 3));
  c->set_output(0, logits);
  return absl::OkStatus();
}

absl::Status LogPartitionShape(InferenceContext* c) {
  TF_RETURN_IF_ERROR(ShiftShape(c));
  c->set_output(0, c->Vector(c->Dim(c->output(0), 0)));
  return absl::OkStatus();
}

absl::Status LogPartitionGradShape(InferenceContext* c) {
  TF_RETURN_IF_ERROR(ShiftShape(c));
  c->set_output(1, c->input(1));
  return absl::OkStatus();
}

absl::Status RanksShape(InferenceContext* c) {
  ShapeHandle labels;
  TF_RETURN_IF_ERROR(ShiftShape(c));
  TF_RETURN_IF_ERROR(MergeRows(c, c->output(0), 4));
  TF_RETURN_IF_ERROR(MergeRows(c, c->output(0), 5));
  TF_RETURN_IF_ERROR(c->Merge(c->input(4), c->input(5), &labels));
  c->set_output(0, labels);
  return absl::OkStatus();
}

REGISTER_OP("LargeoutFillAccidentalHits")
    .Input("values: float")
    .Input("labels: int64")
    .Input("candidates: int64")
    .Output("filled: float")
    .Attr("fill: float")
    .SetShapeFn(FillShape)
    .Doc(R"doc(
Sets values to `fill` where a candidate is one of the labels of the example.

values: [batch, num_candidates].
labels: [batch, num_labels], padded with negative ids.
candidates: [num_candidates], or [batch, num_candidates]; ids may repeat.
filled: [batch, num_candidates].
)doc");

REGISTER_OP("LargeoutShiftCandidateLogits")
    .Input("logits: float")
    .Input("offsets: float")
    .Input("labels: int64")
    .Input("candidates: int64")
    .Output("shifted: float")
    .SetShapeFn(ShiftShape)
    .Doc(R"doc(
Adds an offset to each candidate's logits and removes accidental hits.

logits: [batch, num_candidates].
offsets: [num_candidates] or [batch, num_candidates]: the bias of a candidate
  minus the log of its expected count.
labels: [batch, num_labels], padded with negative ids.
candidates: [num_candidates] or [batch, num_candidates]; ids may repeat.
shifted: [batch, num_candidates], the lowest float at accidental hits.
)doc");

REGISTER_OP("LargeoutCandidateLogPartition")
    .Input("logits: float")
    .Input("offsets: float")
    .Input("labels: int64")
    .Input("candidates: int64")
    .Output("log_partition: float")
    .SetShapeFn(LogPartitionShape)
    .Doc(R"doc(
Log of the sum of exp of the shifted logits of each example, without accidental hits.

Inputs are those of LargeoutShiftCandidateLogits.
log_partition: [batch]; about -3.4e38 if every candidate is a hit or -inf.
)doc");

REGISTER_OP("LargeoutCandidateLogPartitionGrad")
    .Input("logits: float")
    .Input("offsets: float")
    .Input("labels: int64")
    .Input("candidates: int64")
    .Input("log_partition: float")
    .Input("d_log_partition: float")
    .Output("d_logits: float")
    .Output("d_offsets: float")
    .SetShapeFn(LogPartitionGradShape)
    .Doc(R"doc(
Gradient of LargeoutCandidateLogPartition.

log_partition: [batch], its output.
d_log_partition: [batch], the gradient that flows to it.
d_logits: [batch, num_candidates].
d_offsets: of the shape of `offsets`.
)doc");

REGISTER_OP("LargeoutCandidateRanks")
    .Input("logits: float")
    .Input("offsets: float")
    .Input("no_effect: int64")
    .Input("candidates: int64")
    .Input("labels: int64")
    .Input("true_logits: float")
    .Output("ranks: int64")
    .SetShapeFn(RanksShape)
    .Doc(R"doc(
Ranks each label among the candidates and the other labels of its example.

logits, offsets, candidates: those of LargeoutShiftCandidateLogits.
no_effect: [batch, num_ids], padded with negative ids: classes that do not count
  if they are candidates, usually the labels.
labels: [batch, num_labels], padded with negative ids.
true_logits: [batch, num_labels], the logits of the labels.
ranks: [batch, num_labels], the number of candidates and of other labels that
  score higher; num_candidates + num_labels for padding and NaN.
)doc");

}  // namespace
}  // namespace largeout
