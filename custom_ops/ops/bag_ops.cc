#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace largeout {
namespace {

using tensorflow::shape_inference::DimensionHandle;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

// Inputs: embeddings, ids, weights, ...
absl::Status CheckBags(InferenceContext* c, ShapeHandle* ids) {
  TF_RETURN_IF_ERROR(c->WithRank(c->input(1), 2, ids));
  return c->Merge(*ids, c->input(2), ids);
}

absl::Status SumsShape(InferenceContext* c) {
  ShapeHandle ids;
  TF_RETURN_IF_ERROR(CheckBags(c, &ids));
  c->set_output(0, c->Matrix(c->Dim(ids, 0), c->UnknownDim()));
  return absl::OkStatus();
}

absl::Status SumsGradShape(InferenceContext* c) {
  ShapeHandle ids, sums;
  DimensionHandle unused;
  TF_RETURN_IF_ERROR(CheckBags(c, &ids));
  TF_RETURN_IF_ERROR(c->WithRank(c->input(3), 2, &sums));
  TF_RETURN_IF_ERROR(c->Merge(c->Dim(sums, 0), c->Dim(ids, 0), &unused));
  const DimensionHandle num_rows = c->UnknownDim();
  c->set_output(0, c->Vector(num_rows));
  c->set_output(1, c->Matrix(num_rows, c->Dim(sums, 1)));
  c->set_output(2, c->Vector(2));
  return absl::OkStatus();
}

REGISTER_OP("LargeoutBagSums")
    .Input("embeddings: resource")
    .Input("ids: int64")
    .Input("weights: float")
    .Output("sums: float")
    .Attr("differentiate_weights: bool")
    .SetShapeFn(SumsShape)
    .Doc(R"doc(
Weighted sums of rows of a table, without the [batch, num_ids, dim] rows.

embeddings: Variable [num_rows, dim], float; read in place.
ids: [batch, num_ids]; -1 is padding. Other ids out of range are an error.
weights: [batch, num_ids]; values at padding are ignored.
sums: [batch, dim], the sums over i of weights[b, i] * embeddings[ids[b, i]].
differentiate_weights: Whether the weights have a gradient.
)doc");

REGISTER_OP("LargeoutBagSumsGrad")
    .Input("embeddings: resource")
    .Input("ids: int64")
    .Input("weights: float")
    .Input("d_sums: float")
    .Output("row_ids: int64")
    .Output("d_rows: float")
    .Output("embeddings_shape: int64")
    .SetShapeFn(SumsGradShape)
    .Doc(R"doc(
Gradient of the embeddings in LargeoutBagSums, one row for each distinct id. The gradients of an
id are summed in an order that does not depend on the number of threads.

embeddings: Variable [num_rows, dim], float; only its shape is read.
ids: [batch, num_ids]; -1 is padding.
weights: [batch, num_ids].
d_sums: [batch, dim].
row_ids: [num_distinct], increasing.
d_rows: [num_distinct, dim].
embeddings_shape: [2], the shape of the embeddings.
)doc");

}  // namespace
}  // namespace largeout
