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

Leaves of leaf_size consecutive classes are level 0; four consecutive nodes of a level
have a parent in the next; the last level is the root alone. A node keeps the sum over its
classes of w w', where w is the class's embedding, with its bias, if there is one, as one more
number; or the projection of that. See custom_ops/core/kernel_tree/kernel_tree_shape.h. Where an embedding,
a bias or the projection is not finite, or squares are so large that sums of all classes might
overflow, it is an error, and nothing is written.

embeddings: Variable [num_classes, dim], float.
bias: No variable, or one: [num_classes], float.
projection: No variable, or two: float [projected_dim, dim], with a bias [.., dim + 1]; and the
  projected rows, float [num_classes, projected_dim], which are written.
sums: Variable [num_nodes, width], float, written: level after level; the pairs [i, j], j <= i, of
  a symmetric matrix row by row, then zeros up to a multiple of 16.
)doc");

REGISTER_OP("LargeoutKernelTreeUpdate")
    .Input("ids: int64")
    .TREE_INPUTS()
    .Output("num_changed: int64")
    .SetShapeFn(UpdateShape)
    .Doc(R"doc(
Brings a kernel tree up to date with the rows of some classes: projects them, if there is a
projection, and sums their leaves anew, and the nodes above them. If no other rows have changed,
the tree then is bit for bit what LargeoutKernelTreeBuild makes. Errors, before anything is
written, as there.

ids: [num_ids], in [0, num_classes), or -1 for none; may repeat.
embeddings: As LargeoutKernelTreeBuild has it, like those up to sums.
num_changed: How many of these leaves have other sums than before.
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
Draws classes with replacement in proportion to the kernel alpha <h, w_c>^2 + 1 of a row's
features h and the rows w_c of the classes, in O(dim^2 log num_classes) a draw.

A draw goes down the tree, to a child in proportion to its kernel mass, and picks a class of its
leaf by the kernel itself. log_q is the logarithm of the probability with which it did so,
exactly, also where the sums are not those of the embeddings. Draws are independent given the
features, and a function of the inputs: the same on any number of threads.

features: [batch, dim], of the rows that are summed: projected, if there is a projection.
labels: [batch, num_labels], ids in [0, num_classes), or -1 for padding.
seed: [2]; all 128 bits count.
embeddings: Variable [num_classes, dim], float, or the projected rows.
bias: No variable, or one: [num_classes], float; none with projected rows.
sums: As LargeoutKernelTreeBuild has it.
leaf_size: The one that the tree was built with.
num_sampled: Draws of each row; with `shared`, of all together: num_sampled / batch of each row,
  rounded up or down by the seed, and exactly that in the mean.
ids: [batch, num_sampled]; with `shared` [num_sampled].
log_q: As ids: log of the probability that one draw of its row gives the class.
label_log_q: As labels: the same for them; 0 for padding.
)doc");

}  // namespace
}  // namespace largeout
