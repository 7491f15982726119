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

Bucket c of table t holds ids[t, offsets[t, c]] .. ids[t, offsets[t, c + 1] - 1],
rising. Nobody sees the tables half-built. O(num_rows * num_tables); memory of
one table and a half beyond the tables.

embeddings: Variable [num_rows, dim], float.
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
Classes that share buckets with each row, in time that does not depend on the
number of classes.

A function of its inputs. The classes of a row are distinct and no labels of it.
'walk' takes what it meets first, going through the row's buckets from a random
one and a random place on; 'frequent' takes what stands in most of them.

offsets, ids: Variables written by LargeoutLshBuild, read in place.
codes: [batch, n * num_tables], bucket of table i % num_tables; negative: none.
labels: [batch, num_labels], padded with -1.
seed: [2]; all 128 bits count.
max_lookups: The entries of the tables that a row looks at, at most.
fill: Whether a row that finds too few gets uniform draws; else it ends in -1, and all
  rows draw the same numbers.
sampled: [batch, num_sampled]; ends in -1 also where too few classes are no labels.
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
codes: [batch, n * num_tables], bucket of table i % num_tables; negative: none.
seed: [2]; all 128 bits count.
sampled: [num_sampled]; classes may repeat. All -1 where there are no entries.
num_entries: The number of entries E: a class that stands in M of them comes
  num_sampled M / E times in the mean.
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
The first of each list, then the second of each, until enough distinct classes
are found; filled up by uniform draws.

lists: [batch, width] in [-1, num_classes), best first, padded with -1.
seed: [2]; all 128 bits count.
sampled: [num_sampled], distinct; ends in -1 where there are fewer classes.
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
The share of entries that stand in the bucket that their row has now.

offsets, ids: Variables written by LargeoutLshBuild, read in place.
codes: [num_rows, num_tables], the codes of some rows as they are.
row_ids: [num_rows], their classes.
share: In [0, 1]; 1 for no rows.
)doc");

}  // namespace
}  // namespace largeout
