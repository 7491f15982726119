// Permission to write a variable where it stands.

#ifndef LARGEOUT_CUSTOM_OPS_KERNELS_WRITE_IN_PLACE_H_
#define LARGEOUT_CUSTOM_OPS_KERNELS_WRITE_IN_PLACE_H_

#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_var.h"

namespace largeout {

// Makes sure that nobody else sees the memory of a locked variable that is about to be written.
//
// Where a tensor that was read before is still in use, it keeps the old memory, and the variable
// gets a copy of its own. From then on a dense read is a copy (copy-on-read mode, which
// EnsureSparseVariableAccess sets at once): there is one copy in each step, whoever makes it.
// Elsewhere reads stay free: a step may read all of a table, as `keras.layers.Embedding` does,
// and write a few of its rows in place, as long as the read is over by then.
// copy: `absl::Status(const Tensor& from, Tensor* to)`, on the device of the variable.
template <class Copy>
absl::Status AllowWritesInPlace(tensorflow::OpKernelContext* ctx, tensorflow::Var* variable,
                                const Copy& copy) {
  if (variable->copy_on_read_mode.load()) return absl::OkStatus();
  tensorflow::Tensor* const tensor = variable->tensor();
  if (!tensor->IsInitialized() || tensor->RefCountIsOne()) return absl::OkStatus();
  tensorflow::AllocatorAttributes attributes;
  attributes.set_gpu_compatible(true);
  attributes.set_nic_compatible(true);
  tensorflow::Tensor own;
  TF_RETURN_IF_ERROR(ctx->allocate_temp(tensor->dtype(), tensor->shape(), &own, attributes));
  TF_RETURN_IF_ERROR(copy(*tensor, &own));
  *tensor = own;
  variable->copy_on_read_mode.store(true);
  return absl::OkStatus();
}

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_KERNELS_WRITE_IN_PLACE_H_
