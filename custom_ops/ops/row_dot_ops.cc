#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace largeout {
namespace {

using tensorflow::shape_inference::DimensionHandle;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

// Inputs: features, embeddings, num_biases biases, ids, shared_ids, ...
absl::Status CheckClasses(InferenceContext* c, int num_biases, ShapeHandle* features,
                          ShapeHandle* ids, ShapeHandle* shared) {
  DimensionHandle unused;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 2, features));
  TF_RETURN_IF_ERROR(c->WithRank(c->input(2 + num_biases), 2, ids));
  TF_RETURN_IF_ERROR(c->Merge(c->Dim(*features, 0), c->Dim(*ids, 0), &unused));
  return c->WithRank(c->input(3 + num_biases), 1, shared);
}

absl::Status DotsShape(InferenceContext* c) {
  int num_biases;
  ShapeHandle features, ids, shared;
  TF_RETURN_IF_ERROR(c->GetAttr("num_biases", &num_biases));
  TF_RETURN_IF_ERROR(CheckClasses(c, num_biases, &features, &ids, &shared));
  c->set_output(0, ids);
  c->set_output(1, c->Matrix(c->Dim(shared, 0), c->Dim(features, 1)));
  if (num_biases > 0) c->set_output(2, shared);
  return absl::OkStatus();
}

absl::Status DotsGradShape(InferenceContext* c) {
  int num_biases;
  ShapeHandle features, ids, shared, unused;
  TF_RETURN_IF_ERROR(c->GetAttr("num_biases", &num_biases));
  TF_RETURN_IF_ERROR(CheckClasses(c, num_biases, &features, &ids, &shared));
  TF_RETURN_IF_ERROR(c->Merge(c->input(4 + num_biases), ids, &unused));
  TF_RETURN_IF_ERROR(c->WithRank(c->input(5 + num_biases), 2, &unused));
  const DimensionHandle num_rows = c->UnknownDim();
  c->set_output(0, features);
  c->set_output(1, c->Vector(num_rows));
  c->set_output(2, c->Matrix(num_rows, c->Dim(features, 1)));
  c->set_output(3, c->Vector(2));
  if (num_biases > 0) c->set_output(4, c->Vector(num_rows));
  return absl::OkStatus();
}

REGISTER_OP("LargeoutRowDots")
    .Input("features: float")
    .Input("embeddings: resource")
    .Input("bias: num_biases * resource")
    .Input("ids: int64")
    .Input("shared_ids: int64")
    .Output("logits: float")
    .Output("shared_rows: float")
    .Output("shared_biases: num_biases * float")
    .Attr("num_biases: int >= 0")
    .SetShapeFn(DotsShape)
    .Doc(R"doc(
Logits of classes that each example chooses, without their [batch, num_ids, dim] rows, and the
rows of classes that the batch shares. One op computes both, so that a variable gets one sparse
gradient.

features: [batch, dim].
embeddings: Variable [num_classes, dim], float, or bfloat16, whose rows are widened; read in
  place.
bias: No variable, or one: [num_classes], float.
ids: [batch, num_ids]; -1 is padding. Other ids out of range are an error.
shared_ids: [num_shared].
logits: [batch, num_ids], <embeddings[id], features[b]> + bias[id]; the lowest float at padding.
shared_rows: [num_shared, dim], embeddings[shared_ids].
shared_biases: [num_shared], bias[shared_ids], if there is a bias.
)doc");

REGISTER_OP("LargeoutRowDotsGrad")
    .Input("features: float")
    .Input("embeddings: resource")
    .Input("bias: num_biases * resource")
    .Input("ids: int64")
    .Input("shared_ids: int64")
    .Input("d_logits: float")
    .Input("d_shared_rows: float")
    .Input("d_shared_biases: num_biases * float")
    .Output("d_features: float")
    .Output("row_ids: int64")
    .Output("d_rows: float")
    .Output("embeddings_shape: int64")
    .Output("d_biases: num_biases * float")
    .Attr("num_biases: int >= 0")
    .SetShapeFn(DotsGradShape)
    .Doc(R"doc(
Gradient of LargeoutRowDots, one row for each distinct class. The gradients of a class are
summed in an order that does not depend on the number of threads.

features: [batch, dim].
embeddings: Variable [num_classes, dim], float; read in place.
bias: No variable, or one: [num_classes], float.
ids: [batch, num_ids]; -1 is padding.
shared_ids: [num_shared].
d_logits: [batch, num_ids]; values at padding are ignored.
d_shared_rows: [num_shared, dim].
d_shared_biases: [num_shared], if there is a bias.
d_features: [batch, dim], without the contribution of the shared rows.
row_ids: [num_rows], the distinct classes, increasing.
d_rows: [num_rows, dim].
embeddings_shape: [2], the shape of the embeddings.
d_biases: [num_rows], if there is a bias.
)doc");

}  // namespace
}  // namespace largeout
