#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"

namespace largeout {
namespace {

REGISTER_OP("LargeoutServerVersions")
    .Output("versions: string")
    .SetIsStateful()  // the result depends on the process
    .SetShapeFn(tensorflow::shape_inference::ScalarShape)
    .Doc(R"doc(
The versions that the process which runs this op declares: its environment variable
LARGEOUT_SERVER_VERSIONS, which a server of tf_largeout sets.

versions: Scalar, empty if the variable is not set.
)doc");

}  // namespace
}  // namespace largeout
