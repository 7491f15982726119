#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace largeout {
namespace {

using tensorflow::shape_inference::DimensionHandle;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

absl::Status BuildShape(InferenceContext* c) {
  ShapeHandle unused;
  return c->WithRank(c->input(1), 1, &unused);
}

absl::Status QueryShape(InferenceContext* c) {
  int64_t num_sampled;
  ShapeHandle codes, labels, unused;
  DimensionHandle batch;
  TF_RETURN_IF_ERROR(c->GetAttr("num_sampled", &num_sampled));
  TF_RETURN_IF_ERROR(c->WithRank(c->input(2), 2, &codes));
  TF_RETURN_IF_ERROR(c->WithRank(c->input(3), 2, &labels));
  TF_RETURN_IF_ERROR(c->Merge(c->Dim(codes, 0), c->Dim(labels, 0), &batch));
  TF_RETURN_IF_ERROR(c->Merge(c->input(4), c->Vector(2), &unused));
  c->set_output(0, c->Matrix(batch, num_sampled));
  c->set_output(1, c->Vector(batch));
  return absl::OkStatus();
}

absl::Status PoolShape(InferenceContext* c) {
  int64_t num_sampled;
  ShapeHandle unused;
  TF_RETURN_IF_ERROR(c->GetAttr("num_sampled", &num_sampled));
  const int first = c->num_inputs() - 2;  // codes or lists, seed
  TF_RETURN_IF_ERROR(c->WithRank(c->input(first), 2, &unused));
  TF_RETURN_IF_ERROR(c->Merge(c->input(first + 1), c->Vector(2), &unused));
  c->set_output(0, c->Vector(num_sampled));
  c->set_output(1, c->Scalar());
  return absl::OkStatus();
}

absl::Status FreshShareShape(InferenceContext* c) {
  ShapeHandle codes, row_ids;
  DimensionHandle unused;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(2), 2, &codes));
  TF_RETURN_IF_ERROR(c->WithRank(c->input(3), 1, &row_ids));
  TF_RETURN_IF_ERROR(c->Merge(c->Dim(codes, 0), c->Dim(row_ids, 0), &unused));
  c->set_output(0, c->Scalar());
  return absl::OkStatus();
}

REGISTER_OP("LargeoutLshBuild")
    .Input("embeddings: resource")
    .Input("functions: int32")
    .Input("offsets: resource")
    .Input("ids: resource")
    .Attr("kind: {'simhash', 'wta', 'dwta'}")
    .Attr("num_hashes: int >= 1")
    .Attr("num_tables: int >= 1")
    .Attr("bits: int >= 1")
    .Attr("bin_size: int = 8")
    .SetIsStateful()
    .SetShapeFn(BuildShape)
    .Doc(R"doc(
Hashes all rows and sorts them into hash tables, in place.

Bucket c of table t holds ids[t, offsets[t, c]] .. ids[t, offsets[t, c + 1] - 1], increasing.
Readers never see half-built tables. O(num_rows * num_tables). It needs memory for one and a
half tables in addition to the tables.

embeddings: Variable [num_rows, dim], float; on a CPU also bfloat16, hashed as equal float rows.
functions: From LargeoutHashFunctions with the same attributes.
offsets: Variable [num_tables, 2^bits + 1], uint32; all of it is written.
ids: Variable [num_tables, num_rows], uint32; all of it is written.
)doc");

REGISTER_OP("LargeoutLshQuery")
    .Input("offsets: resource")
    .Input("ids: resource")
    .Input("codes: int32")
    .Input("labels: int64")
    .Input("seed: int64")
    .Attr("select: {'walk', 'frequent'}")
    .Attr("num_sampled: int >= 1")
    .Attr("max_lookups: int >= 1")
    .Attr("fill: bool")
    .Output("sampled: int64")
    .Output("num_filled: int32")
    .SetShapeFn(QueryShape)
    .Doc(R"doc(
Classes that share buckets with each example, in time that does not depend on the number of
classes.

The result depends only on the inputs. The classes of an example are distinct and exclude its
labels. 'walk' takes the first classes that it meets: it visits the buckets of the example,
starting at a random one, and each bucket from a random position. 'frequent' takes the classes
that are in most buckets.

offsets, ids: Variables written by LargeoutLshBuild, read in place.
codes: [batch, n * num_tables], bucket of table i % num_tables; negative: padding.
labels: [batch, num_labels], padded with -1.
seed: [2]; all 128 bits count.
max_lookups: The most entries of the tables that are read per example.
fill: Whether to fill up with uniform draws if too few classes are found. If false, the result ends
  in -1, and all examples use the same random numbers.
sampled: [batch, num_sampled]; also ends in -1 if fewer classes exist, not counting the labels.
num_filled: [batch], the number of uniform draws.
)doc");

REGISTER_OP("LargeoutLshPool")
    .Input("offsets: resource")
    .Input("ids: resource")
    .Input("codes: int32")
    .Input("seed: int64")
    .Attr("num_sampled: int >= 1")
    .Output("sampled: int64")
    .Output("num_entries: int64")
    .SetShapeFn(PoolShape)
    .Doc(R"doc(
Draws from all entries in the buckets of a batch, each with the same probability.

offsets, ids: Variables written by LargeoutLshBuild, read in place.
codes: [batch, n * num_tables], bucket of table i % num_tables; negative: padding.
seed: [2]; all 128 bits count.
sampled: [num_sampled]; classes may repeat. All -1 if there are no entries.
num_entries: The number of entries E. A class with M of them is drawn num_sampled M / E times on
  average.
)doc");

REGISTER_OP("LargeoutUnionOfLists")
    .Input("lists: int64")
    .Input("seed: int64")
    .Attr("num_classes: int >= 1")
    .Attr("num_sampled: int >= 1")
    .Output("sampled: int64")
    .Output("num_filled: int64")
    .SetShapeFn(PoolShape)
    .Doc(R"doc(
Takes the first id of each list, then the second of each, until enough distinct classes are
found. Fills up with uniform draws.

lists: [batch, width] in [-1, num_classes), best first, padded with -1.
seed: [2]; all 128 bits count.
sampled: [num_sampled], distinct; ends in -1 if there are fewer classes.
num_filled: The number of uniform draws.
)doc");

REGISTER_OP("LargeoutLshFreshShare")
    .Input("offsets: resource")
    .Input("ids: resource")
    .Input("codes: int32")
    .Input("row_ids: int64")
    .Output("share: float")
    .SetShapeFn(FreshShareShape)
    .Doc(R"doc(
The share of the entries of some rows that are in the current bucket of the row.

offsets, ids: Variables written by LargeoutLshBuild, read in place.
codes: [num_rows, num_tables], the current codes of some rows.
row_ids: [num_rows], their classes.
share: In [0, 1]; 1 for no rows.
)doc");

}  // namespace
}  // namespace largeout
