#include <algorithm>
#include <limits>
#include <string>

#include "custom_ops/core/lsh/lsh_hash.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace largeout {

using tensorflow::Status;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

// The shape of the functions; unknown if the kernel will reject the attributes.
Status HashFunctionsShape(InferenceContext* c) {
  ShapeHandle seed;
  TF_RETURN_IF_ERROR(c->Merge(c->input(0), c->Vector(2), &seed));
  std::string kind;
  int64_t dim, num_hashes, num_tables, bin_size;
  TF_RETURN_IF_ERROR(c->GetAttr("kind", &kind));
  TF_RETURN_IF_ERROR(c->GetAttr("dim", &dim));
  TF_RETURN_IF_ERROR(c->GetAttr("num_hashes", &num_hashes));
  TF_RETURN_IF_ERROR(c->GetAttr("num_tables", &num_tables));
  TF_RETURN_IF_ERROR(c->GetAttr("bin_size", &bin_size));
  const int64_t most = std::numeric_limits<int>::max();
  const HashFamily family = {kind == "simhash" ? HashKind::kSimHash : HashKind::kWta,
                             dim,
                             static_cast<int>(std::min(num_hashes, most)),
                             static_cast<int>(std::min(num_tables, most)),
                             1,
                             static_cast<int>(std::min(bin_size, most)),
                             nullptr};
  c->set_output(0, HashFamilyIsValid(family) ? c->Vector(HashFunctionsSize(family))
                                             : c->Vector(c->UnknownDim()));
  return tensorflow::OkStatus();
}

REGISTER_OP("LargeoutHashFunctions")
    .Input("seed: int64")
    .Attr("kind: {'simhash', 'wta', 'dwta'}")
    .Attr("dim: int >= 1")
    .Attr("num_hashes: int >= 1")
    .Attr("num_tables: int >= 1")
    .Attr("bin_size: int >= 2")
    .Output("functions: int32")
    .SetShapeFn(HashFunctionsShape)
    .Doc(R"doc(
Draws the functions of num_tables locality-sensitive hashes of num_hashes values.

seed: [2]; all 128 bits count. The same seed gives the same functions.
kind: 'simhash' (Charikar 2002), 'wta' (Yagnik et al. 2011) or 'dwta' (Chen and
  Shrivastava 2018).
dim: The size of the vectors.
bin_size: The number of coordinates that a value of WTA or DWTA chooses from, a power of two;
  all of them if dim is smaller.
functions: A vector whose length depends only on the attributes.
)doc");

REGISTER_OP("LargeoutLshHash")
    .Input("vectors: float")
    .Input("functions: int32")
    .Attr("kind: {'simhash', 'wta', 'dwta'}")
    .Attr("num_hashes: int >= 1")
    .Attr("num_tables: int >= 1")
    .Attr("bits: int >= 1")
    .Attr("bin_size: int >= 2")
    .Output("codes: int32")
    .SetShapeFn([](InferenceContext* c) {
      ShapeHandle vectors, functions;
      TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 2, &vectors));
      TF_RETURN_IF_ERROR(c->WithRank(c->input(1), 1, &functions));
      int64_t num_tables;
      TF_RETURN_IF_ERROR(c->GetAttr("num_tables", &num_tables));
      c->set_output(0, c->Matrix(c->Dim(vectors, 0), num_tables));
      return tensorflow::OkStatus();
    })
    .Doc(R"doc(
The bucket of each vector in each hash table.

Vectors that agree in all num_hashes values of a table share its bucket. If the values take more
than `bits` bits, they are mixed so that each bucket gets the same number of combinations of
values. The result is the same on every processor and with any number of threads.

vectors: [n, dim]; any numbers. The zero vector is in bucket 0.
functions: From LargeoutHashFunctions with the same attributes.
bits: The number of bits of a bucket's number, at most 30.
codes: [n, num_tables], in [0, 2^bits).
)doc");

}  // namespace largeout
