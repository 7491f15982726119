#include "custom_ops/core/linear_algebra/rounded_product.h"
#include "custom_ops/kernels/checks.h"
#include "custom_ops/kernels/intra_op_parallel.h"
#include "custom_ops/kernels/largeout_op.h"

namespace largeout {
namespace {

using tensorflow::OpKernelContext;
using tensorflow::Tensor;

class RoundedProductOp : public LargeoutOp {
 public:
  explicit RoundedProductOp(tensorflow::OpKernelConstruction* ctx) : LargeoutOp(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("transpose_a", &transpose_a_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("transpose_b", &transpose_b_));
  }

  void Run(OpKernelContext* ctx) override {
    Factor a, b;
    OP_REQUIRES_OK(ctx, Read(ctx->input(0), "a", transpose_a_, &a));
    OP_REQUIRES_OK(ctx, Read(ctx->input(1), "b", transpose_b_, &b));
    OP_REQUIRES(ctx, a.columns == b.rows,
                tensorflow::errors::InvalidArgument(
                    "the columns of a must be as many as the rows of b, got ", a.columns,
                    " for a ", ctx->input(0).shape().DebugString(), " and ", b.rows, " for b ",
                    ctx->input(1).shape().DebugString()));
    Tensor* product;
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 0, {a.rows, b.columns}, &product));
    RoundedProduct(a, b, IntraOpParallel(ctx), product->flat<float>().data());
  }

 private:
  static absl::Status Read(const Tensor& input, const char* name, bool transposed,
                           Factor* factor) {
    if (input.dims() != 2) return WrongShape(input, name, "a matrix");
    *factor = {input.flat<float>().data(), input.dim_size(transposed),
               input.dim_size(!transposed), transposed};
    return absl::OkStatus();
  }

  bool transpose_a_, transpose_b_;
};

REGISTER_KERNEL_BUILDER(Name("LargeoutRoundedProduct").Device(tensorflow::DEVICE_CPU),
                        RoundedProductOp);

}  // namespace
}  // namespace largeout
