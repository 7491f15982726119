#include "custom_ops/kernels/gpu_context.h"
#include "custom_ops/kernels/largeout_op.h"

namespace largeout {
namespace {

// An error, because otherwise TensorFlow would copy everything to the CPU and back in each
// step.
class NoRoundedProductOp : public LargeoutOp {
 public:
  using LargeoutOp::LargeoutOp;

  void Run(tensorflow::OpKernelContext* ctx) override {
    ctx->SetStatus(
        tensorflow::errors::InvalidArgument("products of bfloat16 numbers run only on CPUs; on "
                                            "a GPU use compute_dtype 'float32', or "
                                            "run them under tf.device('CPU')"));
  }
};

REGISTER_KERNEL_BUILDER(Name("LargeoutRoundedProduct").Device(GpuDeviceType()),
                        NoRoundedProductOp);

}  // namespace
}  // namespace largeout
