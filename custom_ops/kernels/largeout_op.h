// The base of all kernels: what must not end or hang the process becomes an error of the op.

#ifndef LARGEOUT_CUSTOM_OPS_KERNELS_LARGEOUT_OP_H_
#define LARGEOUT_CUSTOM_OPS_KERNELS_LARGEOUT_OP_H_

#include <initializer_list>

#include "tensorflow/core/framework/op_kernel.h"

namespace largeout {

// Every handle among the inputs is one handle when Run begins. Where memory is short in Run,
// also in one of its threads (IntraOpParallel), the op ends with ResourceExhausted: locks are
// released and scratch is freed on the way out. What an op had written in place by then:
//   row updates: each row is as before or updated as a whole, but some are updated;
//   LargeoutKernelTreeBuild and Update: each sum is as before or the new one, but some are new;
//   LargeoutFactoredOutputStep: nothing; but rows may have taken folds, which no weight shows;
//   LargeoutFactoredOutputTakeFolds: the same;
//   LargeoutLshBuild: nothing, or all buckets are empty;
//   LargeoutInvertedFileFit and Upkeep: nothing, or there are no lists, as before the first
//   fit.
class LargeoutOp : public tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;
  void Compute(tensorflow::OpKernelContext* ctx) final;

 private:
  virtual void Run(tensorflow::OpKernelContext* ctx) = 0;
};

// allocate_output for sizes whose product may overflow, which ends the process there.
// output: its number or its name.
template <class Output>
absl::Status AllocateOutput(tensorflow::OpKernelContext* ctx, Output output,
                            std::initializer_list<int64_t> sizes, tensorflow::Tensor** tensor) {
  tensorflow::TensorShape shape;
  TF_RETURN_IF_ERROR(tensorflow::TensorShape::BuildTensorShape(sizes, &shape));
  return ctx->allocate_output(output, shape, tensor);
}

// Reads an attribute that counts something. OK if it is in [1, 2^31): then the product of two
// of them is a number.
absl::Status ReadCount(tensorflow::OpKernelConstruction* ctx, const char* name, int64_t* count);

// OK if the count, which the input of that name holds, is of at least 1 and of 32 bits.
absl::Status CheckCount(const char* name, int64_t count);

// OK if all handles among the inputs are those of different variables. For ops that write some
// of them: they would lock one twice, or read what they write.
absl::Status CheckDistinctVariables(tensorflow::OpKernelContext* ctx);

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_KERNELS_LARGEOUT_OP_H_
