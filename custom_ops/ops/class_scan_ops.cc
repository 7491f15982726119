#include "custom_ops/core/class_scan/packed_rows_simd.h"
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

// The shape of a variable, as far as its handle knows it.
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
  ShapeHandle features, labels, unused;
  int num_biases, num_given;
  TF_RETURN_IF_ERROR(c->GetAttr("num_biases", &num_biases));
  TF_RETURN_IF_ERROR(c->GetAttr("num_given", &num_given));
  const int first_label = kEmbeddings + 1 + num_biases;
  TF_RETURN_IF_ERROR(CheckMatrix(c, &features));
  TF_RETURN_IF_ERROR(CheckRows(c, first_label, 2, features, &labels));
  for (int i = 1; i <= num_given; ++i) {
    TF_RETURN_IF_ERROR(c->Merge(labels, c->input(first_label + i), &labels));
  }
  TF_RETURN_IF_ERROR(c->WithRank(c->input(c->num_inputs() - 1), 0, &unused));
  c->set_output(0, c->Vector(c->Dim(features, 0)));
  c->set_output(1, labels);
  c->set_output(2, labels);
  return absl::OkStatus();
}

absl::Status LabelLogitsShape(InferenceContext* c) {
  ShapeHandle features, labels;
  TF_RETURN_IF_ERROR(CheckMatrix(c, &features));
  TF_RETURN_IF_ERROR(CheckRows(c, c->num_inputs() - 1, 2, features, &labels));
  c->set_output(0, labels);
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

absl::Status PackedTopKShape(InferenceContext* c) {
  constexpr int kTop = 3;
  ShapeHandle features, unused;
  DimensionHandle k;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(kFeatures), 2, &features));
  TF_RETURN_IF_ERROR(c->WithRank(c->input(kTop), 0, &unused));
  TF_RETURN_IF_ERROR(c->MakeDimForScalarInput(kTop, &k));
  const ShapeHandle shape = c->Matrix(c->Dim(features, 0), k);
  c->set_output(0, shape);
  c->set_output(1, shape);
  return absl::OkStatus();
}

absl::Status PackShape(InferenceContext* c) {
  const ShapeHandle embeddings = VariableShape(c, kFeatures, 2);
  const DimensionHandle num_classes = c->Dim(embeddings, 0), dim = c->Dim(embeddings, 1);
  c->set_output(0, c->Vector(InferenceContext::kUnknownDim));
  c->set_output(1, c->Vector(InferenceContext::kUnknownDim));
  if (!c->ValueKnown(num_classes) || !c->ValueKnown(dim)) return absl::OkStatus();
  const PackedSizes sizes = SizesOfPacked(c->Value(num_classes), c->Value(dim));
  c->set_output(0, c->Vector(sizes.codes));
  c->set_output(1, c->Vector(sizes.scales));
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
    .Input("given_logits: num_given * float")
    .Input("first_class: int64")
    .Output("log_partition: float")
    .Output("true_logits: float")
    .Output("ranks: int64")
    .Attr("num_biases: int >= 0")
    .Attr("num_given: int >= 0")
    .Attr("compute_type: {float, bfloat16} = DT_FLOAT")
    .Attr("unit_length: bool = false")
    .SetShapeFn(StatisticsShape)
    .Doc(R"doc(
Log partition function and exact ranks of the labels, in one pass over all
classes that never holds [batch, num_classes].

If the logits of the labels are given, the matrix may be a shard of a larger one, and the labels
may be any classes of the larger one. The ranks of all shards add up to the rank in the whole
matrix, and the logsumexp of their log_partition is that of the whole matrix.

features: [batch, dim].
embeddings: Variable [num_classes, dim], float; read in place.
bias: No variable, or one: [num_classes], float.
labels: [batch, num_labels], padded with -1. Other ids out of range are an error. If logits are
  given, any ids of at least 0.
given_logits: None, or one: [batch, num_labels], the logits of the labels.
first_class: Scalar, the id of the first row of embeddings; must be 0 unless logits are given.
log_partition: [batch], the log of the sum of exp(logit) over all classes of the matrix.
true_logits: [batch, num_labels], 0 at padding; or the given logits.
ranks: [batch, num_labels], the number of classes of the matrix, other than the label, that
  score higher; the lower id wins ties. num_classes at padding and where the logit is NaN or
  -inf.
compute_type: With bfloat16, features and embeddings are rounded to the nearest bfloat16 before
  they are multiplied; sums and biases are float32.
unit_length: Whether each row of embeddings counts as the row scaled to length 1. A row shorter
  than 1e-6 is multiplied by 1e6. A gradient is an error with this attribute.
)doc");

REGISTER_OP("LargeoutLabelLogits")
    .Input("features: float")
    .Input("embeddings: resource")
    .Input("bias: num_biases * resource")
    .Input("labels: int64")
    .Output("true_logits: float")
    .Attr("num_biases: int >= 0")
    .Attr("compute_type: {float, bfloat16} = DT_FLOAT")
    .Attr("unit_length: bool = false")
    .SetShapeFn(LabelLogitsShape)
    .Doc(R"doc(
The logits of the labels without a pass over the classes. They have the same bits as those of
LargeoutClassStatistics for the same features.

features: [batch, dim].
embeddings: Variable [num_classes, dim], float; read in place.
bias: No variable, or one: [num_classes], float.
labels: [batch, num_labels], padded with -1. Other ids out of range are an error.
true_logits: [batch, num_labels], 0 at padding.
compute_type: As in LargeoutClassStatistics.
unit_length: As in LargeoutClassStatistics.
)doc");

REGISTER_OP("LargeoutClassTopK")
    .Input("features: float")
    .Input("embeddings: resource")
    .Input("bias: num_biases * resource")
    .Input("packed_codes: num_packed * uint8")
    .Input("packed_scales: num_packed * float")
    .Input("k: int64")
    .Output("scores: float")
    .Output("ids: int64")
    .Attr("num_biases: int >= 0")
    .Attr("num_packed: int >= 0 = 0")
    .Attr("unit_length: bool = false")
    .SetShapeFn(TopKShape)
    .Doc(R"doc(
The k highest logits of all classes, exactly, in one pass that never holds
[batch, num_classes].

features: [batch, dim]. It is an error if they are not finite, or if a logit of a finite row and
  bias overflows.
embeddings: Variable [num_classes, dim], float; read in place.
bias: No variable, or one: [num_classes], float.
packed_codes, packed_scales: None, or the outputs of LargeoutPackClasses for the current matrix.
  They make the op faster, with the same bits as result.
k: Scalar in [1, num_classes].
scores: [batch, k], in decreasing order.
ids: [batch, k]. The lower id wins ties. NaN and -inf of classes whose row or bias is not finite
  come last.
unit_length: As in LargeoutClassStatistics. It is an error with packed_codes.
)doc");

REGISTER_OP("LargeoutPackClasses")
    .Input("embeddings: resource")
    .Input("bias: num_biases * resource")
    .Output("codes: uint8")
    .Output("scales: float")
    .Attr("num_biases: int >= 0")
    .SetIsStateful()  // reads variables
    .SetShapeFn(PackShape)
    .Doc(R"doc(
Packs classes as 8-bit codes, with bounds of the errors of their logits, for LargeoutClassTopK.

embeddings: Variable [num_classes, dim], float; read in place.
bias: No variable, or one: [num_classes], float.
codes: [m], where m is the product of num_classes and dim, each rounded up to a multiple of 16.
scales: [n], where n is 5 times num_classes, rounded up to a multiple of 16.
)doc");

REGISTER_OP("LargeoutPackedTopK")
    .Input("features: float")
    .Input("packed_codes: uint8")
    .Input("packed_scales: float")
    .Input("k: int64")
    .Output("scores: float")
    .Output("ids: int64")
    .Attr("num_classes: int >= 1")
    .SetShapeFn(PackedTopKShape)
    .Doc(R"doc(
The k highest logits of classes that are only stored as 8-bit codes, exactly for the rows that the
codes represent.

features: [batch, dim]. It is an error if they are not finite, or if a logit overflows.
packed_codes, packed_scales: The outputs of LargeoutPackClasses for a matrix [num_classes, dim].
k: Scalar in [1, num_classes].
scores: [batch, k], in decreasing order.
ids: [batch, k]. The lower id wins ties. Classes whose row or bias was not finite come last, with
  the score -inf.
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
    .Attr("compute_type: {float, bfloat16} = DT_FLOAT")
    .SetShapeFn(GradientShape)
    .Doc(R"doc(
Gradient of sum_b weights[b] * log_partition[b]
+ sum_bl label_weights[b, l] * logit of labels[b, l] for example b,
with the probabilities recomputed block by block.

features: [batch, dim].
embeddings: Variable [num_classes, dim], float; read in place.
bias: No variable, or one: [num_classes], float.
log_partition: [batch], from LargeoutClassStatistics.
weights: [batch]. Examples whose weights are all 0 are ignored.
labels: [batch, num_labels], padded with -1. Other ids out of range are an error.
label_weights: [batch, num_labels].
compute_type: As in LargeoutClassStatistics; probabilities are rounded too.
d_features: [batch, dim].
d_embeddings: [num_classes, dim].
d_bias: [num_classes], if there is a bias.
)doc");

}  // namespace
}  // namespace largeout
