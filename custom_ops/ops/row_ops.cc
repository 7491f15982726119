#include <vector>

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace largeout {
namespace {

using tensorflow::shape_inference::DimensionHandle;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

absl::Status ValuesAndIdsShape(InferenceContext* c, ShapeHandle values, ShapeHandle ids) {
  DimensionHandle rows;
  TF_RETURN_IF_ERROR(c->WithRank(ids, 1, &ids));
  TF_RETURN_IF_ERROR(c->WithRankAtLeast(values, 1, &values));
  return c->Merge(c->Dim(values, 0), c->Dim(ids, 0), &rows);
}

// Inputs: resources, values, ids, scalars, and at most one `rounding`.
absl::Status RowUpdateShape(InferenceContext* c) {
  std::vector<ShapeHandle> values, ids;
  TF_RETURN_IF_ERROR(c->input("values", &values));
  TF_RETURN_IF_ERROR(c->input("ids", &ids));
  TF_RETURN_IF_ERROR(ValuesAndIdsShape(c, values[0], ids[0]));
  int num_rounding;
  TF_RETURN_IF_ERROR(c->GetAttr("num_rounding", &num_rounding));
  bool after_ids = false;
  for (int i = 0; i < c->num_inputs() - num_rounding; ++i) {
    ShapeHandle scalar;
    if (after_ids) TF_RETURN_IF_ERROR(c->WithRank(c->input(i), 0, &scalar));
    after_ids |= c->input(i).SameHandle(ids[0]);
  }
  return absl::OkStatus();
}

absl::Status MergeRowsShape(InferenceContext* c) {
  TF_RETURN_IF_ERROR(ValuesAndIdsShape(c, c->input(0), c->input(1)));
  ShapeHandle merged;
  TF_RETURN_IF_ERROR(c->ReplaceDim(c->input(0), 0, c->UnknownDim(), &merged));
  c->set_output(0, merged);
  c->set_output(1, c->Vector(c->Dim(merged, 0)));
  return absl::OkStatus();
}

absl::Status CheckRowIdsShape(InferenceContext* c) {
  ShapeHandle ids, num_rows;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 1, &ids));
  TF_RETURN_IF_ERROR(c->WithRank(c->input(1), 0, &num_rows));
  c->set_output(0, ids);
  return absl::OkStatus();
}

}  // namespace

REGISTER_OP("LargeoutRowAdam")
    .Input("variable: resource")
    .Input("momentum: num_momentum * resource")
    .Input("velocity: resource")
    .Input("last_step: num_last_step * resource")
    .Input("values: float")
    .Input("ids: Tindices")
    .Input("step: int64")
    .Input("step_size: float")
    .Input("beta_1: double")
    .Input("beta_2: double")
    .Input("epsilon: float")
    .Input("weight_decay: float")
    .Input("rounding: num_rounding * int64")
    .Attr("num_momentum: int >= 0 = 1")
    .Attr("num_last_step: int >= 0 = 0")
    .Attr("num_rounding: int >= 0 = 0")
    .Attr("Tindices: {int32, int64}")
    .SetIsStateful()
    .SetShapeFn(RowUpdateShape)
    .Doc(R"doc(
Adam on the rows that have a gradient, in place.

For each distinct id, g = sum of the rows of `values` with that id, and on that row of the
variable w and of its moments m and v:

    w -= weight_decay w
    m += (g - m) (1 - beta_1)
    v += (g^2 - v) (1 - beta_2)
    w -= step_size m / (sqrt(v) + epsilon)

Without a momentum slot, g is used in place of m, as with beta_1 = 0. No other row is read or
written. With `last_step`, m and v are first multiplied by beta_1^gap and beta_2^gap, where gap
= step - last_step - 1 is the number of steps that skipped the row, and last_step of the row
becomes step. An id out of range is an error, and nothing is written.

variable: w, float32 [num_rows, ...].
momentum: none, or m, like the variable.
velocity: v, like the variable.
last_step: none, or one int64 [num_rows]; 0 for a row that has not been updated.
values: gradients, [n, ...].
ids: the row of each gradient, [n]; may repeat.
step: number of this step, from 1; used only with `last_step`.
step_size: learning rate with bias correction,
  learning_rate sqrt(1 - beta_2^step) / (1 - beta_1^step).
rounding: as in LargeoutRowAdagrad.
)doc");

REGISTER_OP("LargeoutRowAdagrad")
    .Input("variable: resource")
    .Input("accumulator: resource")
    .Input("values: float")
    .Input("ids: Tindices")
    .Input("learning_rate: float")
    .Input("epsilon: float")
    .Input("weight_decay: float")
    .Input("rounding: num_rounding * int64")
    .Attr("num_rounding: int >= 0 = 0")
    .Attr("Tindices: {int32, int64}")
    .SetIsStateful()
    .SetShapeFn(RowUpdateShape)
    .Doc(R"doc(
Adagrad on the rows that have a gradient, in place.

For each distinct id, g = sum of the rows of `values` with that id, and

    w -= weight_decay w
    a += g^2
    w -= learning_rate g / sqrt(a + epsilon)

on that row. An id out of range is an error, and nothing is written.

variable: w, float32 [num_rows, ...].
accumulator: a, like the variable.
values: gradients, [n, ...].
ids: the row of each gradient, [n]; may repeat.
rounding: none if the variable is float32. If it is bfloat16, [seed, step]: the updated rows are
  rounded at random, and the random bits depend on the seed, the step, the row and the column.
  The slots are float32.
)doc");

REGISTER_OP("LargeoutRowRowwiseAdagrad")
    .Input("variable: resource")
    .Input("accumulator: resource")
    .Input("values: float")
    .Input("ids: Tindices")
    .Input("learning_rate: float")
    .Input("epsilon: float")
    .Input("weight_decay: float")
    .Input("rounding: num_rounding * int64")
    .Attr("num_rounding: int >= 0 = 0")
    .Attr("Tindices: {int32, int64}")
    .SetIsStateful()
    .SetShapeFn(RowUpdateShape)
    .Doc(R"doc(
Adagrad with one accumulator per row, on the rows that have a gradient, in place.

For each distinct id, g = sum of the rows of `values` with that id, and

    w -= weight_decay w
    a += mean(g^2)
    w -= learning_rate g / sqrt(a + epsilon)

on that row. An id out of range is an error, and nothing is written.

variable: w, float32 [num_rows, ...].
accumulator: a, float32 [num_rows].
values: gradients, [n, ...].
ids: the row of each gradient, [n]; may repeat.
rounding: as in LargeoutRowAdagrad.
)doc");

REGISTER_OP("LargeoutRowMomentum")
    .Input("variable: resource")
    .Input("momentum: num_momentum * resource")
    .Input("values: float")
    .Input("ids: Tindices")
    .Input("learning_rate: float")
    .Input("decay: float")
    .Input("weight_decay: float")
    .Input("rounding: num_rounding * int64")
    .Attr("num_momentum: int >= 0 = 1")
    .Attr("nesterov: bool = false")
    .Attr("num_rounding: int >= 0 = 0")
    .Attr("Tindices: {int32, int64}")
    .SetIsStateful()
    .SetShapeFn(RowUpdateShape)
    .Doc(R"doc(
Gradient descent with momentum on the rows that have a gradient, in place.

For each distinct id, g = sum of the rows of `values` with that id, and

    w -= weight_decay w
    m = decay m - learning_rate g
    w += m, or with `nesterov` w += decay m - learning_rate g

on that row; without a momentum slot w -= learning_rate g. An id out of range is an error, and
nothing is written.

variable: w, float32 [num_rows, ...].
momentum: none, or m, like the variable.
values: gradients, [n, ...].
ids: the row of each gradient, [n]; may repeat.
rounding: as in LargeoutRowAdagrad.
)doc");

REGISTER_OP("LargeoutMergeRows")
    .Input("values: float")
    .Input("ids: Tindices")
    .Output("merged_values: float")
    .Output("unique_ids: Tindices")
    .Attr("Tindices: {int32, int64}")
    .SetShapeFn(MergeRowsShape)
    .Doc(R"doc(
Sums the rows that have the same id.

values: [n, ...].
ids: [n], not negative.
merged_values: [u, ...]; row i is the sum of the rows with id unique_ids[i].
unique_ids: [u], ascending.
)doc");

REGISTER_OP("LargeoutCheckRowIds")
    .Input("ids: Tindices")
    .Input("num_rows: int64")
    .Output("checked_ids: Tindices")
    .Attr("Tindices: {int32, int64}")
    .SetShapeFn(CheckRowIdsShape)
    .Doc(R"doc(
Returns `ids`, or an error if one is outside [0, num_rows).
)doc");

}  // namespace largeout
