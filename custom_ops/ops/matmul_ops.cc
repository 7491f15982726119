#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"

namespace largeout {
namespace {

REGISTER_OP("LargeoutMatmul")
    .Input("a: float")
    .Input("b: float")
    .Output("product: float")
    .Attr("transpose_a: bool = false")
    .Attr("transpose_b: bool = false")
    .SetShapeFn(tensorflow::shape_inference::MatMulShape)
    .Doc(R"doc(
The product of two matrices, on all threads whatever their size: TensorFlow's MatMul takes one
thread where all three fit into a few second caches. Not both may be transposed. The results
are the same to the bit on any number of threads. There is no kernel for GPUs.

a: [rows, depth], or [depth, rows] if it is to be transposed.
b: [depth, width], or [width, depth] if it is to be transposed.
product: [rows, width].
)doc");

}  // namespace
}  // namespace largeout
