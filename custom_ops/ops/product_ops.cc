#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace largeout {
namespace {

REGISTER_OP("LargeoutRoundedProduct")
    .Input("a: float")
    .Input("b: float")
    .Output("product: float")
    .Attr("transpose_a: bool = false")
    .Attr("transpose_b: bool = false")
    .SetShapeFn(tensorflow::shape_inference::MatMulShape)
    .Doc(R"doc(
The product of two matrices that are first rounded to the nearest bfloat16; sums are float.

Only on a CPU. Several times as fast as a product of floats if the processor has AMX, otherwise
slower.

a: [rows, depth], or [depth, rows] if `transpose_a`.
b: [depth, columns], or [columns, depth] if `transpose_b`.
product: [rows, columns]. The bits do not depend on the number of threads.
)doc");

}  // namespace
}  // namespace largeout
