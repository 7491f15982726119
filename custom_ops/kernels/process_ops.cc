#include <cstdlib>

#include "custom_ops/kernels/largeout_op.h"

namespace largeout {
namespace {

// On the CPU only, like all ops on strings.
class ServerVersionsOp : public LargeoutOp {
 public:
  using LargeoutOp::LargeoutOp;

  void Run(tensorflow::OpKernelContext* ctx) override {
    tensorflow::Tensor* versions = nullptr;
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 0, {}, &versions));
    const char* value = std::getenv("LARGEOUT_SERVER_VERSIONS");
    versions->scalar<tensorflow::tstring>()() = value == nullptr ? "" : value;
  }
};

REGISTER_KERNEL_BUILDER(Name("LargeoutServerVersions").Device(tensorflow::DEVICE_CPU),
                        ServerVersionsOp);

}  // namespace
}  // namespace largeout
