#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace largeout {
namespace {

REGISTER_OP("LargeoutDenseAdam")
    .Input("variable: resource")
    .Input("momentum: resource")
    .Input("velocity: resource")
    .Input("gradient: float")
    .Input("step_size: float")
    .Input("beta_1: double")
    .Input("beta_2: double")
    .Input("epsilon: float")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::NoOutputs)
    .Doc(R"doc(
Adam on a whole variable, in place and in one pass over memory.

    m += (g - m) (1 - beta_1)
    v += (g^2 - v) (1 - beta_2)
    w -= step_size m / (sqrt(v) + epsilon)

in float32. Each operation is rounded separately, like separate TensorFlow operations.

variable: w, float32.
momentum: m, like the variable.
velocity: v, like the variable.
gradient: g, like the variable.
step_size: learning rate with bias correction,
  learning_rate sqrt(1 - beta_2^step) / (1 - beta_1^step).
)doc");

}  // namespace
}  // namespace largeout
