#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace largeout {
namespace {

using tensorflow::shape_inference::DimensionHandle;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

// The batch of features and ids.
absl::Status BatchOf(InferenceContext* c, DimensionHandle* batch) {
  ShapeHandle features, ids;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 2, &features));
  TF_RETURN_IF_ERROR(c->WithRank(c->input(1), 2, &ids));
  return c->Merge(c->Dim(features, 0), c->Dim(ids, 0), batch);
}

absl::Status ScoresShape(InferenceContext* c) {
  DimensionHandle batch;
  TF_RETURN_IF_ERROR(BatchOf(c, &batch));
  c->set_output(0, c->Vector(batch));
  c->set_output(1, c->Vector(batch));
  c->set_output(2, c->Matrix(batch, c->Dim(c->input(1), 1)));
  c->set_output(3, c->Matrix(batch, c->UnknownDim()));
  c->set_output(4, c->Matrix(batch, c->UnknownDim()));
  c->set_output(5, c->Scalar());
  return absl::OkStatus();
}

absl::Status StepShape(InferenceContext* c) {
  DimensionHandle batch;
  ShapeHandle unused;
  TF_RETURN_IF_ERROR(BatchOf(c, &batch));
  TF_RETURN_IF_ERROR(c->Merge(c->input(2), c->Vector(batch), &unused));
  TF_RETURN_IF_ERROR(c->Merge(c->input(3), c->Vector(batch), &unused));
  TF_RETURN_IF_ERROR(c->Merge(c->input(4), c->Matrix(batch, c->Dim(c->input(1), 1)), &unused));
  const ShapeHandle products = c->Matrix(batch, c->UnknownDim());
  TF_RETURN_IF_ERROR(c->Merge(c->input(5), products, &unused));
  TF_RETURN_IF_ERROR(c->Merge(c->input(6), products, &unused));
  TF_RETURN_IF_ERROR(c->WithRank(c->input(7), 0, &unused));
  TF_RETURN_IF_ERROR(c->WithRank(c->input(8), 0, &unused));
  c->set_output(0, c->Matrix(batch, c->Dim(c->input(0), 1)));
  return absl::OkStatus();
}

// The state of the layer.
#define FACTORED_STATE()          \
  Input("vectors: resource")      \
      .Input("mixing: resource")  \
      .Input("inverse: resource") \
      .Input("offset: resource")  \
      .Input("total: resource")   \
      .Input("gram: resource")    \
      .Input("steps: resource")   \
      .Input("folds: resource")   \
      .Input("seen: resource")

REGISTER_OP("LargeoutFactoredOutputScores")
    .Input("features: T")
    .Input("ids: int64")
    .FACTORED_STATE()
    .Attr("T: {float, double}")
    .Output("q: double")
    .Output("s: double")
    .Output("a: double")
    .Output("gram_features: double")
    .Output("mixed_features: double")
    .Output("version: int64")
    .SetShapeFn(ScoresShape)
    .Doc(R"doc(
What losses of the spherical family are computed from: of the logits o = W h of each example the
sum of squares, the sum, and those of its targets, in O(batch width^2).

W [num_classes, width] is V U + 1 omega' and never formed; see
custom_ops/core/factored_output/factored_output.h. Where the layer has a bias, that is its last column, and
features have one number less: they get a 1.

features: [batch, dim] with dim = width, or width - 1 where the layer has a bias; finite.
ids: [batch, num_targets], in [0, num_classes), or -1 for padding.
vectors: Variable V [num_classes, width], float or double.
mixing: Variable U [width, width], double.
inverse: Variable, the inverse of U, [width, width], double.
offset: Variable omega [width], double.
total: Variable W'1 [width], double.
gram: Variable W'W [width, width], double.
steps: Variable, int64 scalar: how many steps made the state.
folds: Variable [capacity + 1, width + 1], double: changes of the basis of V that its rows take
  when they are met, in a log that begins with their number; see
  custom_ops/core/factored_output/factored_output_folds.h.
seen: Variable [num_classes], uint32: how many of them each row has been through.
q: [batch], the sum of the squares of all logits.
s: [batch], their sum.
a: [batch, num_targets], the logits of the targets; 0 for padding.
gram_features: [batch, width]: W'W h, which a step needs again.
mixed_features: [batch, width]: U h, the same.
version: The value of steps.
)doc");

REGISTER_OP("LargeoutFactoredOutputStep")
    .Input("features: T")
    .Input("ids: int64")
    .Input("by_q: double")
    .Input("by_s: double")
    .Input("by_a: double")
    .Input("gram_features: double")
    .Input("mixed_features: double")
    .Input("version: int64")
    .Input("learning_rate: double")
    .FACTORED_STATE()
    .Attr("T: {float, double}")
    .Attr("update: bool = true")
    .Attr("min_pivot: float = 0.0001")
    .Output("by_features: double")
    .SetShapeFn(StepShape)
    .Doc(R"doc(
A step of plain gradient descent on all of W, exactly, in O(batch width^2 + batch^2 width), of a
loss whose slopes by the scores are given.

The step is an error, and nothing is written, where a slope or the learning rate is not finite,
the learning rate is negative, version is not the value of steps any more, a pivot of
I - 2 learning_rate H'H diag(by_q) (of Gauss's elimination with the largest pivot of each column)
is less than min_pivot, or a number of the new state would not be finite, or so large that it
might not be. A step of an empty batch changes nothing, not even steps.

Where it leaves singular values of mixing that are far from 1, these come near to it, and vectors
are corrected, row by row when they are met: W stays as it is. Where folds has no room for that,
the op brings all rows up to date first, also where the step is refused. Every 256 steps inverse
is computed anew.

Where the vectors are float, on a CPU, what the step adds to the state is computed in float, and
the state is kept in double.

features: As LargeoutFactoredOutputScores has it, like ids and the state.
by_q: [batch], the derivative of the loss by q.
by_s: [batch], by s.
by_a: [batch, num_targets], by a; 0 for padding. Those of a class that a row repeats are added.
gram_features: What LargeoutFactoredOutputScores returned, like mixed_features and version.
learning_rate: A finite number, at least 0.
update: Whether the state is changed; if not, the gradient is all.
min_pivot: Above 0.
by_features: [batch, dim], the derivative of the loss by the features, before the step.
)doc");

REGISTER_OP("LargeoutFactoredOutputTakeFolds")
    .FACTORED_STATE()
    .SetShapeFn(tensorflow::shape_inference::NoOutputs)
    .Doc(R"doc(
Brings all rows of the vectors of a factored output layer up to date: they take all folds, and
there are none any more. W stays as it is, but for rounding. Nothing to do is done at once.

vectors: As LargeoutFactoredOutputScores has it, like all others.
)doc");

#undef FACTORED_STATE

REGISTER_OP("LargeoutFactoredOutputVectors")
    .Input("vectors: T")
    .Input("folds: double")
    .Input("seen: uint32")
    .Attr("T: {float, double}")
    .Output("current: T")
    .SetShapeFn(tensorflow::shape_inference::UnchangedShape)
    .Doc(R"doc(
All rows of the vectors of a factored output layer, up to date.

vectors: The values of variables, as LargeoutFactoredOutputScores has them, like folds and seen.
current: [num_classes, width]; the same tensor as vectors where there are no folds.
)doc");

}  // namespace
}  // namespace largeout
