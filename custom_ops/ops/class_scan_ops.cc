#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace largeout {
namespace {

using tensorflow::shape_inference::DimensionHandle;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

constexpr int kFeatures = 0;
constexpr int kEmbeddings = 1;

// The shape of a variable as far as its handle tells.
ShapeHandle VariableShape(InferenceContext* c, int index, int rank) {
  const auto* handle = c->input_handle_shapes_and_types(index);
  ShapeHandle shape;
  if (handle == nullptr || handle->empty() ||
      !c->WithRank((*handle)[0].shape, rank, &shape).ok()) {
    return c->UnknownShapeOfRank(rank);
  }
  return shape;
}

// features [batch, dim] and embeddings [num_classes, dim] must agree.
absl::Status CheckMatrix(InferenceContext* c, ShapeHandle* features) {
  DimensionHandle unused;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(kFeatures), 2, features));
  const ShapeHandle embeddings = VariableShape(c, kEmbeddings, 2);
  return c->Merge(c->Dim(*features, 1), c->Dim(embeddings, 1), &unused);
}

absl::Status CheckRows(InferenceContext* c, int index, int rank, ShapeHandle features,
                       ShapeHandle* rows) {
  DimensionHandle batch;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(index), rank, rows));
  TF_RETURN_IF_ERROR(c->Merge(c->Dim(*rows, 0), c->Dim(features, 0), &batch));
  return c->ReplaceDim(*rows, 0, batch, rows);
}

absl::Status StatisticsShape(InferenceContext* c) {
  ShapeHandle features, labels;
  TF_RETURN_IF_ERROR(CheckMatrix(c, &features));
  TF_RETURN_IF_ERROR(CheckRows(c, c->num_inputs() - 1, 2, features, &labels));
  c->set_output(0, c->Vector(c->Dim(features, 0)));
  c->set_output(1, labels);
  c->set_output(2, labels);
  return absl::OkStatus();
}

absl::Status TopKShape(InferenceContext* c) {
  ShapeHandle features, unused;
  DimensionHandle k;
  TF_RETURN_IF_ERROR(CheckMatrix(c, &features));
  TF_RETURN_IF_ERROR(c->WithRank(c->input(c->num_inputs() - 1), 0, &unused));
  TF_RETURN_IF_ERROR(c->MakeDimForScalarInput(c->num_inputs() - 1, &k));
  const ShapeHandle shape = c->Matrix(c->Dim(features, 0), k);
  c->set_output(0, shape);
  c->set_output(1, shape);
  return absl::OkStatus();
}

absl::Status GradientShape(InferenceContext* c) {
  ShapeHandle features, unused;
  TF_RETURN_IF_ERROR(CheckMatrix(c, &features));
  const int rest = c->num_inputs() - 4;  // log_partition, weights, labels, label_weights
  TF_RETURN_IF_ERROR(CheckRows(c, rest, 1, features, &unused));
  TF_RETURN_IF_ERROR(CheckRows(c, rest + 1, 1, features, &unused));
  TF_RETURN_IF_ERROR(CheckRows(c, rest + 2, 2, features, &unused));
  TF_RETURN_IF_ERROR(CheckRows(c, rest + 3, 2, features, &unused));
  const ShapeHandle embeddings = VariableShape(c, kEmbeddings, 2);
  c->set_output(0, features);
  c->set_output(1, embeddings);
  if (c->num_outputs() > 2) c->set_output(2, c->Vector(c->Dim(embeddings, 0)));
  return absl::OkStatus();
}

REGISTER_OP("LargeoutClassStatistics")
    .Input("features: float")
    .Input("embeddings: resource")
    .Input("bias: num_biases * resource")
    .Input("labels: int64")
    .Output("log_partition: float")
    .Output("true_logits: float")
    .Output("ranks: int64")
    .Attr("num_biases: int >= 0")
    .SetShapeFn(StatisticsShape)
    .Doc(R"doc(
Log partition function and exact ranks of the labels, in one pass over all
classes that never holds [batch, num_classes].

features: [batch, dim].
embeddings: Variable [num_classes, dim], float; read in place.
bias: No variable, or one: [num_classes], float.
labels: [batch, num_labels], padded with -1. Other ids outside of the classes are an error;
  on a GPU, which the host does not wait for, their logits are NaN.
log_partition: [batch], the log of the sum of exp(logit) over all classes.
true_logits: [batch, num_labels], 0 at padding.
ranks: [batch, num_labels], the number of classes that score higher, ties going
  to the lower id; num_classes at padding and where the logit is NaN or -inf.
)doc");

REGISTER_OP("LargeoutClassTopK")
    .Input("features: float")
    .Input("embeddings: resource")
    .Input("bias: num_biases * resource")
    .Input("k: int64")
    .Output("scores: float")
    .Output("ids: int64")
    .Attr("num_biases: int >= 0")
    .SetShapeFn(TopKShape)
    .Doc(R"doc(
The k highest logits of all classes, exactly, in one pass that never holds
[batch, num_classes].

features: [batch, dim]. It is an error where they are not finite, or where a logit found
  overflows, of a row and a bias that are finite; on a GPU, which the host does not wait for,
  the score is NaN then and the id -1.
embeddings: Variable [num_classes, dim], float; read in place.
bias: No variable, or one: [num_classes], float.
k: Scalar in [1, num_classes], on a GPU at most 2048.
scores: [batch, k], falling.
ids: [batch, k]; of equal scores the lower id first, NaN and -inf of classes whose row or bias
  is not finite last.
)doc");

REGISTER_OP("LargeoutClassSoftmaxGradient")
    .Input("features: float")
    .Input("embeddings: resource")
    .Input("bias: num_biases * resource")
    .Input("log_partition: float")
    .Input("weights: float")
    .Input("labels: int64")
    .Input("label_weights: float")
    .Output("d_features: float")
    .Output("d_embeddings: float")
    .Output("d_bias: num_biases * float")
    .Attr("num_biases: int >= 0")
    .SetShapeFn(GradientShape)
    .Doc(R"doc(
Gradient of sum_b weights[b] * log_partition[b]
+ sum_bl label_weights[b, l] * logit of labels[b, l] for row b,
with the probabilities recomputed block by block.

features: [batch, dim].
embeddings: Variable [num_classes, dim], float; read in place.
bias: No variable, or one: [num_classes], float.
log_partition: [batch], as LargeoutClassStatistics gives it.
weights: [batch]. Rows whose weights are all 0 take no part.
labels: [batch, num_labels], padded with -1. Other ids outside of the classes are an error;
  on a GPU they have no gradient.
label_weights: [batch, num_labels].
d_features: [batch, dim].
d_embeddings: [num_classes, dim].
d_bias: [num_classes], if there is a bias.
)doc");

}  // namespace
}  // namespace largeout
