#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace largeout {
namespace {

using tensorflow::shape_inference::DimensionHandle;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

absl::Status SearchShape(InferenceContext* c) {
  const int last = c->num_inputs() - 1;
  DimensionHandle k;
  ShapeHandle features, unused;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 2, &features));
  TF_RETURN_IF_ERROR(c->WithRank(c->input(last), 0, &unused));
  TF_RETURN_IF_ERROR(c->MakeDimForScalarInput(last, &k));
  const ShapeHandle shape = c->Matrix(c->Dim(features, 0), k);
  c->set_output(0, shape);
  c->set_output(1, shape);
  return absl::OkStatus();
}

// The variables of an inverted file, as read by kernels/inverted_file_input.h.
#define FILE_INPUTS()               \
  Input("means: resource")          \
      .Input("mean_bias: resource") \
      .Input("offsets: resource")   \
      .Input("ids: resource")       \
      .Input("codes: resource")     \
      .Input("scales: resource")

// The inputs of an op that fits the lists to the classes.
#define UPDATE_INPUTS()                     \
  Input("embeddings: resource")             \
      .Input("bias: num_biases * resource") \
      .FILE_INPUTS()                        \
      .Input("schedule: resource")          \
      .Attr("num_biases: int >= 0")         \
      .Attr("unit_length: bool = false")

// The same as tensors: copies, because the variables are on another device.
#define COPIED_INPUTS()                  \
  Input("embeddings: float")             \
      .Input("bias: num_biases * float") \
      .Input("means: float")             \
      .Input("mean_bias: float")         \
      .Input("offsets: uint32")          \
      .Input("ids: uint32")              \
      .Input("codes: uint8")             \
      .Input("scales: float")            \
      .Input("schedule: int64")          \
      .Attr("num_biases: int >= 0")      \
      .Attr("unit_length: bool = false") \
      .Output("new_means: float")        \
      .Output("new_mean_bias: float")    \
      .Output("new_offsets: uint32")     \
      .Output("new_ids: uint32")         \
      .Output("new_codes: uint8")        \
      .Output("new_scales: float")       \
      .Output("new_schedule: int64")

// The outputs have the shapes of the last inputs.
absl::Status ShapesOfTheFile(InferenceContext* c) {
  const int first = c->num_inputs() - c->num_outputs();
  for (int i = 0; i < c->num_outputs(); ++i) c->set_output(i, c->input(first + i));
  return absl::OkStatus();
}

REGISTER_OP("LargeoutInvertedFileSearch")
    .Input("features: float")
    .FILE_INPUTS()
    .Input("k: int64")
    .Attr("num_probes: int >= 1")
    .Output("scores: float")
    .Output("ids_found: int64")
    .SetShapeFn(SearchShape)
    .Doc(R"doc(
Finds most of the k classes with the highest logits, in about O(sqrt(num_classes)).

A query is scored against the mean row of each list, and then against the members of the
num_probes best lists. It searches fewer lists if these have as many members as num_probes lists
of mean size. Before the lists are fitted, it finds nothing.

features: [batch, dim].
means: Variable [num_lists, dim], float.
mean_bias: Variable [num_lists], float.
offsets: Variable [num_lists + 1], uint32; members of list l are
  ids[offsets[l]] to ids[offsets[l + 1] - 1].
ids: Variable [num_classes], uint32.
codes: Variable [num_groups, width / 4, 16, 4], uint8. num_groups is num_classes / 16, rounded up,
  and width is dim, rounded up to a multiple of 16. Contains the rows of the members in the order
  of ids, 16 of them interleaved. A code is an integer in [-127, 127], plus 128.
scales: Variable [num_groups, 2, 16], float: the value of the integer 1, and the biases.
k: Scalar, at least 1.
scores: [batch, k], in decreasing order: logits of the 8-bit rows of the last upkeep; -inf where
  the id is -1.
ids_found: [batch, k]; -1 if fewer than k are found. Classes whose rows or biases are not finite
  are never found.
)doc");

REGISTER_OP("LargeoutInvertedFileFit")
    .UPDATE_INPUTS()
    .SetShapeFn(tensorflow::shape_inference::NoOutputs)
    .Doc(R"doc(
Fits the lists of an inverted file, by spherical k-means on a sample of the rows and one pass
over all rows. O(num_classes num_lists dim).

embeddings: Variable [num_classes, dim], float.
bias: No variable, or one: [num_classes], float.
means: As in LargeoutInvertedFileSearch, like those up to scales.
schedule: Variable [2], int64: the number of the next step, and that of the step when the lists
  were fitted, or -1. The draws of k-means depend on the number of the step, so they are the same
  on all replicas.
unit_length: Whether the file is that of the rows scaled to length 1. A row shorter than 1e-6 is
  multiplied by 1e6.
)doc");

REGISTER_OP("LargeoutInvertedFileUpkeep")
    .UPDATE_INPUTS()
    .Attr("interval: int >= 1")
    .Attr("rows_a_step: int >= 1")
    .SetShapeFn(tensorflow::shape_inference::NoOutputs)
    .Doc(R"doc(
Updates an inverted file in one training step. If there are no lists, it fits them. Afterwards,
every `interval` steps, it reassigns the next interval * rows_a_step rows, all rows in turn. If
nine in ten of these rows change their list, and all rows have been reassigned since the fit,
the weights have changed too much, and the lists are fitted again.

embeddings: As in LargeoutInvertedFileFit, like those up to schedule.
)doc");

REGISTER_OP("LargeoutInvertedFileFitted").COPIED_INPUTS().SetShapeFn(ShapesOfTheFile).Doc(R"doc(
LargeoutInvertedFileFit on tensors.

embeddings: The value of the variable of LargeoutInvertedFileFit, like those up to schedule.
new_means: The value of the variable after the op, like those up to new_schedule.
)doc");

REGISTER_OP("LargeoutInvertedFileKeptUp")
    .COPIED_INPUTS()
    .SetShapeFn(ShapesOfTheFile)
    .Attr("interval: int >= 1")
    .Attr("rows_a_step: int >= 1")
    .Doc(R"doc(
LargeoutInvertedFileUpkeep on tensors.

embeddings: As in LargeoutInvertedFileFitted, like those up to new_schedule.
)doc");

#undef COPIED_INPUTS
#undef FILE_INPUTS
#undef UPDATE_INPUTS

}  // namespace
}  // namespace largeout
