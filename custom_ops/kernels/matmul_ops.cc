#include "custom_ops/core/matmul.h"
#include "custom_ops/kernels/checks.h"
#include "custom_ops/kernels/intra_op_parallel.h"
#include "custom_ops/kernels/largeout_op.h"

namespace largeout {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

Strided<float> Factor(const Tensor& matrix, bool transposed) {
  const float* data = matrix.flat<float>().data();
  const int64_t width = matrix.dim_size(1);
  if (transposed) return {data, 1, width};
  return {data, width, 1};
}

// On the CPU alone: on a GPU TensorFlow's own product is used (tf_largeout/ops/matmul_ops.py).
class MatmulOp : public LargeoutOp {
 public:
  explicit MatmulOp(OpKernelConstruction* ctx) : LargeoutOp(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("transpose_a", &transpose_a_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("transpose_b", &transpose_b_));
    OP_REQUIRES(ctx, !(transpose_a_ && transpose_b_),
                tensorflow::errors::InvalidArgument(
                    "transpose_a and transpose_b must not both be true, got both"));
  }

  void Run(OpKernelContext* ctx) override {
    const Tensor &a = ctx->input(0), &b = ctx->input(1);
    OP_REQUIRES(ctx, a.dims() == 2, WrongShape(a, "a", "a matrix"));
    OP_REQUIRES(ctx, b.dims() == 2, WrongShape(b, "b", "a matrix"));
    const ProductSize size = {a.dim_size(transpose_a_ ? 1 : 0),
                              a.dim_size(transpose_a_ ? 0 : 1),
                              b.dim_size(transpose_b_ ? 0 : 1)};
    OP_REQUIRES(ctx, b.dim_size(transpose_b_ ? 1 : 0) == size.depth,
                WrongShape(b, "b", "a matrix with ", size.depth, " to be summed over, as a ",
                           a.shape().DebugString()));
    Tensor* product = nullptr;
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 0, {size.rows, size.width}, &product));
    Multiply(size, Factor(a, transpose_a_), Factor(b, transpose_b_), IntraOpParallel(ctx),
             product->flat<float>().data());
  }

 private:
  bool transpose_a_ = false, transpose_b_ = false;
};

REGISTER_KERNEL_BUILDER(Name("LargeoutMatmul").Device(tensorflow::DEVICE_CPU), MatmulOp);

}  // namespace
}  // namespace largeout
