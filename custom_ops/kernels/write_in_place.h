// Permission to write a variable where it stands.

#ifndef LARGEOUT_CUSTOM_OPS_KERNELS_WRITE_IN_PLACE_H_
#define LARGEOUT_CUSTOM_OPS_KERNELS_WRITE_IN_PLACE_H_

#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_var.h"

namespace largeout {

// Puts a locked variable into copy-on-read mode, as EnsureSparseVariableAccess does: from
// now on a read is a copy. Tensors that were read before keep the old memory.
// copy: `absl::Status(const Tensor& from, Tensor* to)`, on the device of the variable.
template <class Copy>
absl::Status AllowWritesInPlace(tensorflow::OpKernelContext* ctx, tensorflow::Var* variable,
                                const Copy& copy) {
  if (variable->copy_on_read_mode.load()) return absl::OkStatus();
  tensorflow::Tensor* const tensor = variable->tensor();
  if (tensor->IsInitialized() && !tensor->RefCountIsOne()) {
    tensorflow::AllocatorAttributes attributes;
    attributes.set_gpu_compatible(true);
    attributes.set_nic_compatible(true);
    tensorflow::Tensor own;
    TF_RETURN_IF_ERROR(ctx->allocate_temp(tensor->dtype(), tensor->shape(), &own, attributes));
    TF_RETURN_IF_ERROR(copy(*tensor, &own));
    *tensor = own;
  }
  variable->copy_on_read_mode.store(true);
  return absl::OkStatus();
}

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_KERNELS_WRITE_IN_PLACE_H_
