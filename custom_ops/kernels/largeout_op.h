// The base of all kernels. It turns what would end or hang the process into an error of the op.

#ifndef LARGEOUT_CUSTOM_OPS_KERNELS_LARGEOUT_OP_H_
#define LARGEOUT_CUSTOM_OPS_KERNELS_LARGEOUT_OP_H_

#include <initializer_list>

#include "tensorflow/core/framework/op_kernel.h"

namespace largeout {

// Before Run, it checks that every handle input is a single handle. If memory runs out in Run
// or one of its threads (IntraOpParallel), the op ends with ResourceExhausted; locks are
// released and scratch is freed. What an op has written in place by then:
//   row updates: each row is either unchanged or completely updated, and some are updated;
//   LargeoutKernelTreeBuild and Update: each sum is either the old or the new one, and some
//     are new;
//   LargeoutFactoredOutputStep: nothing; rows may have taken folds, which change no weight;
//   LargeoutFactoredOutputTakeFolds: the same;
//   LargeoutLshBuild: nothing, or all buckets are empty;
//   LargeoutInvertedFileFit and Upkeep: nothing, or there are no lists, as before the first
//     fit.
class LargeoutOp : public tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;
  void Compute(tensorflow::OpKernelContext* ctx) final;

 private:
  virtual void Run(tensorflow::OpKernelContext* ctx) = 0;
};

// allocate_output for sizes whose product may overflow, for which TensorFlow's function ends
// the process. output: its number or its name.
template <class Output>
absl::Status AllocateOutput(tensorflow::OpKernelContext* ctx, Output output,
                            std::initializer_list<int64_t> sizes, tensorflow::Tensor** tensor) {
  tensorflow::TensorShape shape;
  TF_RETURN_IF_ERROR(tensorflow::TensorShape::BuildTensorShape(sizes, &shape));
  return ctx->allocate_output(output, shape, tensor);
}

// Reads an attribute that is a count. OK if it is in [1, 2^31), so that the product of two
// counts does not overflow.
absl::Status ReadCount(tensorflow::OpKernelConstruction* ctx, const char* name, int64_t* count);

// OK if the count, the value of the input of that name, is in [1, 2^31).
absl::Status CheckCount(const char* name, int64_t count);

// OK if all handle inputs are of different variables. For ops that write some of them:
// otherwise they would lock a variable twice, or read what they write.
absl::Status CheckDistinctVariables(tensorflow::OpKernelContext* ctx);

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_KERNELS_LARGEOUT_OP_H_
