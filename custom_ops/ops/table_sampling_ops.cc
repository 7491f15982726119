#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace largeout {

using tensorflow::Status;
using tensorflow::shape_inference::DimensionHandle;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

Status TableSampleShape(InferenceContext* c, int table_rank) {
  int64_t num_sampled;
  TF_RETURN_IF_ERROR(c->GetAttr("num_sampled", &num_sampled));
  ShapeHandle unused;
  TF_RETURN_IF_ERROR(c->Merge(c->input(1), c->Vector(2), &unused));
  TF_RETURN_IF_ERROR(c->WithRank(c->input(2), table_rank, &unused));
  TF_RETURN_IF_ERROR(c->WithRank(c->input(3), 1, &unused));
  c->set_output(0, c->Vector(num_sampled));
  c->set_output(1, c->input(0));
  c->set_output(2, c->Vector(num_sampled));
  return tensorflow::OkStatus();
}

REGISTER_OP("LargeoutAliasTable")
    .Input("weights: double")
    .Output("slots: int64")
    .Output("probability: float")
    .SetShapeFn([](InferenceContext* c) {
      ShapeHandle weights;
      TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 1, &weights));
      c->set_output(0, c->Matrix(c->Dim(weights, 0), 2));
      c->set_output(1, weights);
      return tensorflow::OkStatus();
    })
    .Doc(R"doc(
Makes the table for LargeoutAliasSample, in O(num_classes).

weights: [num_classes], positive and finite, need not sum to 1.
slots: [num_classes, 2]; slot c gives class c with probability slots[c, 0] / 2^60,
  otherwise class slots[c, 1].
probability: [num_classes], weights over their sum, as rounded in the slots.
)doc");

REGISTER_OP("LargeoutAliasSample")
    .Input("true_classes: int64")
    .Input("seed: int64")
    .Input("slots: int64")
    .Input("probability: float")
    .Attr("num_sampled: int >= 1")
    .Output("sampled_candidates: int64")
    .Output("true_expected_count: float")
    .Output("sampled_expected_count: float")
    .SetShapeFn([](InferenceContext* c) { return TableSampleShape(c, 2); })
    .Doc(R"doc(
Draws classes with replacement from the distribution of an alias table.

A draw takes O(1). The result depends only on the inputs: the same seed gives the same classes
on any number of threads. Expected counts are num_sampled * probability.

true_classes: any shape; ids in [0, num_classes), or -1 for padding.
seed: [2]; all 128 bits count.
slots: [num_classes, 2], from LargeoutAliasTable.
probability: [num_classes], from LargeoutAliasTable.
sampled_candidates: [num_sampled].
true_expected_count: like true_classes; 1 for padding.
sampled_expected_count: [num_sampled].
)doc");

REGISTER_OP("LargeoutPivotalTable")
    .Input("weights: double")
    .Attr("num_sampled: int >= 1")
    .Attr("num_buckets: int >= 1")
    .Output("cumulative: int64")
    .Output("index: int64")
    .SetShapeFn([](InferenceContext* c) {
      ShapeHandle weights;
      TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 1, &weights));
      DimensionHandle num_ends;
      TF_RETURN_IF_ERROR(c->Add(c->Dim(weights, 0), 1, &num_ends));
      int64_t num_buckets;
      DimensionHandle num_places;
      TF_RETURN_IF_ERROR(c->GetAttr("num_buckets", &num_buckets));
      TF_RETURN_IF_ERROR(c->Add(c->MakeDim(num_buckets), 1, &num_places));  // checks the sum
      c->set_output(0, c->Vector(num_ends));
      c->set_output(1, c->Vector(num_places));
      return tensorflow::OkStatus();
    })
    .Doc(R"doc(
Makes the table for LargeoutPivotalSample, in O(num_classes).

weights: [num_classes], positive and finite, need not sum to 1.
num_sampled: that of LargeoutPivotalSample; at most num_classes.
num_buckets: more buckets make a draw faster; num_classes / 4 is enough.
cumulative: [num_classes + 1], sums of the inclusion probabilities
  min(1, tau weights), in units that make them integers.
index: [num_buckets + 1], where the search in `cumulative` starts.
)doc");

REGISTER_OP("LargeoutPivotalSample")
    .Input("true_classes: int64")
    .Input("seed: int64")
    .Input("cumulative: int64")
    .Input("index: int64")
    .Attr("num_sampled: int >= 1")
    .Output("sampled_candidates: int64")
    .Output("true_expected_count: float")
    .Output("sampled_expected_count: float")
    .SetShapeFn([](InferenceContext* c) { return TableSampleShape(c, 1); })
    .Doc(R"doc(
Draws distinct classes with given inclusion probabilities.

Ordered pivotal sampling (Deville and Tille 1998, Chauvet 2012) from a random start. Class c is
drawn with probability min(1, tau weights[c]) exactly, its expected count. The result depends
only on the inputs. It takes O(num_sampled) on average.

true_classes: any shape; ids in [0, num_classes), or -1 for padding.
seed: [2]; all 128 bits count.
cumulative: [num_classes + 1], from LargeoutPivotalTable.
index: [num_buckets + 1], from LargeoutPivotalTable.
num_sampled: the number that the table was made for.
sampled_candidates: [num_sampled].
true_expected_count: like true_classes; 1 for padding.
sampled_expected_count: [num_sampled].
)doc");

}  // namespace largeout
