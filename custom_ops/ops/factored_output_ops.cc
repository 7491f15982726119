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
Computes the scores that losses of the spherical family need from the logits o = W h of each
example, in O(batch width^2): the sum of their squares, their sum, and the logits of the targets.

W [num_classes, width] is V U + 1 omega' and is never formed; see
custom_ops/core/factored_output/factored_output.h. If the layer has a bias, it is the last
column of W, features have one number less, and a 1 is appended to them.

features: [batch, dim] with dim = width, or width - 1 if the layer has a bias; finite.
ids: [batch, num_targets], in [0, num_classes), or -1 for padding.
vectors: Variable V [num_classes, width], float or double.
mixing: Variable U [width, width], double.
inverse: Variable, the inverse of U, [width, width], double.
offset: Variable omega [width], double.
total: Variable W'1 [width], double.
gram: Variable W'W [width, width], double.
steps: Variable, int64 scalar: the number of steps so far.
folds: Variable [capacity + 1, width + 1], double: a log of changes of the basis of V, which a row
  takes when it is next used. The first number is their number; see
  custom_ops/core/factored_output/factored_output_folds.h.
seen: Variable [num_classes], uint32: the number of folds that each row has taken.
q: [batch], the sum of the squares of all logits.
s: [batch], the sum of all logits.
a: [batch, num_targets], the logits of the targets; 0 for padding.
gram_features: [batch, width]: W'W h, which a step needs again.
mixed_features: [batch, width]: U h, which a step needs again.
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
One exact step of plain gradient descent on all of W, in O(batch width^2 + batch^2 width), for a
loss whose derivatives by the scores are given.

The op reports an error and writes nothing if
* a derivative or the learning rate is not finite, or the learning rate is negative;
* version is not the current value of steps;
* a pivot of I - 2 learning_rate H'H diag(by_q) (in Gaussian elimination with partial pivoting) is
  less than min_pivot;
* a number of the new state would not be finite, or is too large to tell.
A step with an empty batch changes nothing, not even steps.

If singular values of mixing are far from 1 after the step, they are brought closer to 1, and each
row of vectors is corrected when it is next used: W does not change. If folds has no room for that,
the op first corrects all rows, even if the step is then refused. inverse is recomputed every 256
steps.

If the vectors are float, the changes of the state are computed in float on a CPU; the state
itself is double.

features: As in LargeoutFactoredOutputScores, like ids and the state.
by_q: [batch], the derivative of the loss by q.
by_s: [batch], the derivative by s.
by_a: [batch, num_targets], the derivative by a; 0 for padding. Derivatives of a class that an
  example repeats are added.
gram_features: From LargeoutFactoredOutputScores, like mixed_features and version.
learning_rate: A finite number, at least 0.
update: Whether to change the state. If false, only the gradient is computed.
min_pivot: Above 0.
by_features: [batch, dim], the derivative of the loss by the features, before the step.
)doc");

REGISTER_OP("LargeoutFactoredOutputTakeFolds")
    .FACTORED_STATE()
    .SetShapeFn(tensorflow::shape_inference::NoOutputs)
    .Doc(R"doc(
Applies all folds to all rows of the vectors of a factored output layer, and clears the log. W
does not change, except for rounding. Returns immediately if there are no folds.

vectors: As in LargeoutFactoredOutputScores, like all others.
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
The vectors of a factored output layer after all folds.

vectors: The values of variables, as in LargeoutFactoredOutputScores, like folds and seen.
current: [num_classes, width]; the same tensor as vectors if there are no folds.
)doc");

}  // namespace
}  // namespace largeout
