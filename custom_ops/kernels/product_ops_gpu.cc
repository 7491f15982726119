#include "custom_ops/kernels/gpu_context.h"
#include "custom_ops/kernels/largeout_op.h"

namespace largeout {
namespace {

// Says so, where TensorFlow would copy everything to the CPU and back in each step.
class NoRoundedProductOp : public LargeoutOp {
 public:
  using LargeoutOp::LargeoutOp;

  void Run(tensorflow::OpKernelContext* ctx) override {
    ctx->SetStatus(tensorflow::errors::InvalidArgument(
        "products by bfloat16 numbers are for CPUs; on a GPU take compute_dtype 'float32', or "
        "make them under tf.device('CPU')"));
  }
};

REGISTER_KERNEL_BUILDER(Name("LargeoutRoundedProduct").Device(GpuDeviceType()),
                        NoRoundedProductOp);

}  // namespace
}  // namespace largeout
