// What all row-sparse optimizer ops share: locking, checks, merging.

#ifndef LARGEOUT_CUSTOM_OPS_KERNELS_ROW_UPDATE_OP_H_
#define LARGEOUT_CUSTOM_OPS_KERNELS_ROW_UPDATE_OP_H_

#include <vector>

#include "custom_ops/core/row_update.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace largeout {

// OK if every id lies in [0, num_rows); else an error with the first that does not.
absl::Status CheckRowIds(const tensorflow::Tensor& ids, int64_t num_rows);

// `ids` has been checked and is int32 or int64.
MergedRows MergeRowIds(const tensorflow::Tensor& ids, const ParallelFor& parallel_for);

// Inputs: the variable's handle, the slots' handles, values, ids, scalars. A
// subclass reads slots and scalars and runs the update; when Update is called
// variable, values and ids are checked and all variables are locked.
class RowUpdateOp : public tensorflow::OpKernel {
 public:
  explicit RowUpdateOp(tensorflow::OpKernelConstruction* ctx);
  void Compute(tensorflow::OpKernelContext* ctx) final;

 protected:
  struct Inputs {
    tensorflow::OpKernelContext* ctx;
    tensorflow::Tensor variable;            // [num_rows, ...]
    std::vector<tensorflow::Tensor> slots;  // in input order
    int first_scalar;

    int64_t num_rows() const { return variable.dim_size(0); }

    template <typename T>
    T Scalar(int index) const {
      return ctx->input(first_scalar + index).scalar<T>()();
    }
  };

  // Updates the rows; an error must come before the first write.
  virtual absl::Status Update(const Inputs& inputs, const MergedRows& merged,
                              const float* values, int64_t dim,
                              const ParallelFor& parallel_for) = 0;

  // The slot's memory if it has the dtype and the shape: that of the variable,
  // or [num_rows].
  template <typename T>
  static absl::Status FullSlot(const Inputs& inputs, int slot, T** data);
  template <typename T>
  static absl::Status PerRowSlot(const Inputs& inputs, int slot, T** data);

 private:
  absl::Status AllowSparseAccess(tensorflow::OpKernelContext* ctx) const;
  absl::Status CheckShapes(const Inputs& inputs) const;

  int num_resources_ = 0;
};

template <typename T>
absl::Status CheckSlot(const tensorflow::Tensor& slot, const tensorflow::TensorShape& shape) {
  if (slot.dtype() == tensorflow::DataTypeToEnum<T>::value && slot.shape() == shape) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "an optimizer slot must be ",
      tensorflow::DataTypeString(tensorflow::DataTypeToEnum<T>::value), " of shape ",
      shape.DebugString(), ", but is ", tensorflow::DataTypeString(slot.dtype()), " of shape ",
      slot.shape().DebugString()));
}

template <typename T>
absl::Status RowUpdateOp::FullSlot(const Inputs& inputs, int slot, T** data) {
  tensorflow::Tensor tensor = inputs.slots[slot];
  TF_RETURN_IF_ERROR(CheckSlot<T>(tensor, inputs.variable.shape()));
  *data = tensor.flat<T>().data();
  return absl::OkStatus();
}

template <typename T>
absl::Status RowUpdateOp::PerRowSlot(const Inputs& inputs, int slot, T** data) {
  tensorflow::Tensor tensor = inputs.slots[slot];
  TF_RETURN_IF_ERROR(CheckSlot<T>(tensor, {inputs.num_rows()}));
  *data = tensor.flat<T>().data();
  return absl::OkStatus();
}

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_KERNELS_ROW_UPDATE_OP_H_
