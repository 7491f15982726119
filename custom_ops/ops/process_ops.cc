#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"

namespace largeout {
namespace {

REGISTER_OP("LargeoutServerVersions")
    .Output("versions: string")
    .SetIsStateful()  // other processes give other answers
    .SetShapeFn(tensorflow::shape_inference::ScalarShape)
    .Doc(R"doc(
What the process that runs this says of its versions: its environment variable
LARGEOUT_SERVER_VERSIONS, which a server of tf_largeout sets.

versions: Scalar, empty in a process that says nothing.
)doc");

}  // namespace
}  // namespace largeout
