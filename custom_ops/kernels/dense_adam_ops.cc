#include "custom_ops/core/optimizers/dense_adam.h"
#include "custom_ops/kernels/checks.h"
#include "custom_ops/kernels/intra_op_parallel.h"
#include "custom_ops/kernels/largeout_op.h"
#include "custom_ops/kernels/variable_locks.h"

namespace largeout {
namespace {

using tensorflow::OpKernelContext;
using tensorflow::Tensor;

class DenseAdamOp : public LargeoutOp {
 public:
  using LargeoutOp::LargeoutOp;

  void Run(OpKernelContext* ctx) override {
    LockedVariables variables;
    OP_REQUIRES_OK(ctx, CheckDistinctVariables(ctx));
    for (int i = 0; i < kNumVariables; ++i) {
      OP_REQUIRES_OK(ctx, variables.Find(ctx, ctx->input(i)));
    }
    variables.Lock();
    OP_REQUIRES_OK(ctx, variables.AllowWrites(ctx, CopyOnHost));
    OP_REQUIRES_OK(ctx, Check(ctx, variables));
    const DenseAdamArguments arguments = {variables.tensor(0)->flat<float>().data(),
                                          variables.tensor(1)->flat<float>().data(),
                                          variables.tensor(2)->flat<float>().data(),
                                          ctx->input(kGradient).flat<float>().data(),
                                          ctx->input(kGradient + 1).scalar<float>()(),
                                          Gain(ctx->input(kGradient + 2)),
                                          Gain(ctx->input(kGradient + 3)),
                                          ctx->input(kGradient + 4).scalar<float>()()};
    UpdateAll(arguments, ctx->input(kGradient).NumElements(), IntraOpParallel(ctx));
  }

 private:
  static constexpr int kNumVariables = 3, kGradient = 3;

  static float Gain(const Tensor& beta) {
    return static_cast<float>(1 - beta.scalar<double>()());
  }

  static absl::Status Check(OpKernelContext* ctx, const LockedVariables& variables) {
    const Tensor& gradient = ctx->input(kGradient);
    for (int i = 0; i < kNumVariables; ++i) {
      const Tensor& variable = *variables.tensor(i);
      if (!variable.IsInitialized()) {
        return absl::FailedPreconditionError("the variable or a slot is not initialized");
      }
      TF_RETURN_IF_ERROR(CheckVariable(variable, i == 0 ? "the variable" : "an optimizer slot",
                                       tensorflow::DT_FLOAT, gradient.shape()));
    }
    for (int i = kGradient + 1; i < ctx->num_inputs(); ++i) {
      TF_RETURN_IF_ERROR(CheckScalar(ctx->input(i), "a hyperparameter"));
    }
    return absl::OkStatus();
  }
};

REGISTER_KERNEL_BUILDER(Name("LargeoutDenseAdam").Device(tensorflow::DEVICE_CPU), DenseAdamOp);

}  // namespace
}  // namespace largeout
