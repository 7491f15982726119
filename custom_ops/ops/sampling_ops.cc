#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace largeout {

using tensorflow::Status;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

// Inputs 0 and 1 are true_classes and seed, outputs sampled_candidates,
// true_expected_count and sampled_expected_count.
Status SampledValuesShape(InferenceContext* c) {
  int64_t num_sampled;
  TF_RETURN_IF_ERROR(c->GetAttr("num_sampled", &num_sampled));
  ShapeHandle seed = c->input(1);
  TF_RETURN_IF_ERROR(c->Merge(seed, c->Vector(2), &seed));
  c->set_output(0, c->Vector(num_sampled));
  c->set_output(1, c->input(0));
  c->set_output(2, c->Vector(num_sampled));
  return tensorflow::OkStatus();
}

REGISTER_OP("LargeoutUniformSample")
    .Input("true_classes: int64")
    .Input("seed: int64")
    .Attr("num_classes: int >= 1")
    .Attr("num_sampled: int >= 1")
    .Attr("unique: bool")
    .Output("sampled_candidates: int64")
    .Output("true_expected_count: float")
    .Output("sampled_expected_count: float")
    .SetShapeFn(SampledValuesShape)
    .Doc(R"doc(
Draws classes with equal probabilities.

The result depends only on the inputs: the same seed gives the same classes on any number of
threads. With unique, the classes are distinct and each is among them with probability
num_sampled / num_classes; without, the draws are independent. In both cases the expected count
of a class is num_sampled / num_classes.

true_classes: any shape; ids in [0, num_classes), or -1 for padding.
seed: [2]; all 128 bits count.
sampled_candidates: [num_sampled].
true_expected_count: like true_classes; 1 for padding.
sampled_expected_count: [num_sampled].
)doc");

REGISTER_OP("LargeoutLogUniformSample")
    .Input("true_classes: int64")
    .Input("seed: int64")
    .Attr("num_classes: int >= 1")
    .Attr("num_sampled: int >= 1")
    .Attr("unique: bool")
    .Output("sampled_candidates: int64")
    .Output("true_expected_count: float")
    .Output("sampled_expected_count: float")
    .SetShapeFn(SampledValuesShape)
    .Doc(R"doc(
Draws classes from q_c = log((c + 2) / (c + 1)) / log(num_classes + 1).

For classes sorted by decreasing frequency. The result depends only on the inputs. It takes
O(num_sampled), without tables. Without unique, the draws are independent and the expected count
of class c is num_sampled q_c. With unique, the classes are distinct and class c is among them
with probability min(1, tau q_c), its expected count, where tau makes these sum to num_sampled.

true_classes: any shape; ids in [0, num_classes), or -1 for padding.
seed: [2]; all 128 bits count.
sampled_candidates: [num_sampled].
true_expected_count: like true_classes; 1 for padding.
sampled_expected_count: [num_sampled].
)doc");

}  // namespace largeout
