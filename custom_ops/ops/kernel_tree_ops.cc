#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace largeout {
namespace {

using tensorflow::shape_inference::DimensionHandle;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

absl::Status UpdateShape(InferenceContext* c) {
  ShapeHandle ids;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 1, &ids));
  c->set_output(0, c->Scalar());
  return absl::OkStatus();
}

absl::Status SampleShape(InferenceContext* c) {
  bool shared;
  int64_t num_sampled;
  ShapeHandle features, labels, unused;
  DimensionHandle batch;
  TF_RETURN_IF_ERROR(c->GetAttr("shared", &shared));
  TF_RETURN_IF_ERROR(c->GetAttr("num_sampled", &num_sampled));
  TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 2, &features));
  TF_RETURN_IF_ERROR(c->WithRank(c->input(1), 2, &labels));
  TF_RETURN_IF_ERROR(c->Merge(c->Dim(features, 0), c->Dim(labels, 0), &batch));
  TF_RETURN_IF_ERROR(c->Merge(c->input(2), c->Vector(2), &unused));
  const ShapeHandle draws = shared ? c->Vector(num_sampled) : c->Matrix(batch, num_sampled);
  c->set_output(0, draws);
  c->set_output(1, draws);
  c->set_output(2, labels);
  return absl::OkStatus();
}

// The rows that a tree sums, and its sums.
#define TREE_INPUTS()                                  \
  Input("embeddings: resource")                        \
      .Input("bias: num_biases * resource")            \
      .Input("projection: num_projections * resource") \
      .Input("sums: resource")                         \
      .Attr("num_biases: int >= 0")                    \
      .Attr("num_projections: int >= 0")               \
      .Attr("leaf_size: int >= 1")

REGISTER_OP("LargeoutKernelTreeBuild")
    .TREE_INPUTS()
    .SetShapeFn(tensorflow::shape_inference::NoOutputs)
    .Doc(R"doc(
Sums the rows of all classes into a kernel tree, in O(num_classes dim^2).

Level 0 are leaves of leaf_size classes with consecutive ids. Four consecutive nodes of a level
have a common parent in the next level, up to the root. A node keeps the sum over its classes of
w w', where w is the embedding of the class, followed by its bias, if there is one; or the
projection of that. See custom_ops/core/kernel_tree/kernel_tree_shape.h. It is an error, and
nothing is written, if an embedding, a bias or the projection is not finite, or if sums of
squares over all classes might overflow.

embeddings: Variable [num_classes, dim], float; on a CPU also bfloat16, read as equal float rows.
bias: No variable, or one: [num_classes], float.
projection: No variable, or two: float [projected_dim, dim], with a bias [projected_dim, dim + 1];
  and the projected rows, float [num_classes, projected_dim], which are written.
sums: Variable [num_nodes, width], float, written level by level. A row has the elements [i, j],
  j <= i, of a symmetric matrix row by row, then zeros up to a multiple of 16.
)doc");

REGISTER_OP("LargeoutKernelTreeUpdate")
    .Input("ids: int64")
    .TREE_INPUTS()
    .Output("num_changed: int64")
    .SetShapeFn(UpdateShape)
    .Doc(R"doc(
Updates a kernel tree with the current rows of some classes. It projects them, if there is a
projection, and recomputes the sums of their leaves and of the nodes above. If no other rows
have changed, the tree then has the same bits as from LargeoutKernelTreeBuild. The errors are
also those of LargeoutKernelTreeBuild; they occur before anything is written.

ids: [num_ids], in [0, num_classes), or -1 for padding; may repeat.
embeddings: As in LargeoutKernelTreeBuild, like those up to sums.
num_changed: How many of these leaves have changed.
)doc");

#undef TREE_INPUTS

REGISTER_OP("LargeoutKernelTreeSample")
    .Input("features: float")
    .Input("labels: int64")
    .Input("seed: int64")
    .Input("embeddings: resource")
    .Input("bias: num_biases * resource")
    .Input("sums: resource")
    .Attr("num_biases: int >= 0")
    .Attr("leaf_size: int >= 1")
    .Attr("num_sampled: int >= 1")
    .Attr("alpha: float")
    .Attr("shared: bool = false")
    .Output("ids: int64")
    .Output("log_q: float")
    .Output("label_log_q: float")
    .SetShapeFn(SampleShape)
    .Doc(R"doc(
Draws classes with replacement in proportion to the kernel alpha <h, w_c>^2 + 1 of the features
h of an example and the rows w_c of the classes, in O(dim^2 log num_classes) per draw.

A draw descends the tree, to a child with probability proportional to its kernel mass, and picks
a class of the leaf by the kernel itself. log_q is the exact log of the probability of that
path, even if the sums do not match the embeddings. Given the features, draws are independent.
They depend only on the inputs, not on the number of threads.

features: [batch, dim], for the rows that are summed: projected, if there is a projection.
labels: [batch, num_labels], ids in [0, num_classes), or -1 for padding.
seed: [2]; all 128 bits count.
embeddings: Variable [num_classes, dim], float; on a CPU also bfloat16; or the projected rows.
bias: No variable, or one: [num_classes], float; none with projected rows.
sums: As in LargeoutKernelTreeBuild.
leaf_size: The leaf size that the tree was built with.
num_sampled: Draws per example. With `shared`, draws of all examples together: each example makes
  num_sampled / batch draws, rounded up or down by the seed, and exactly that on average.
ids: [batch, num_sampled]; with `shared` [num_sampled].
log_q: Like ids: log of the probability that one draw of its example gives the class.
label_log_q: Like labels: the same for the labels; 0 for padding.
)doc");

}  // namespace
}  // namespace largeout
