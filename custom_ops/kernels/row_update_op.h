// What all row-sparse optimizer ops share, on both devices: locks, checks, arguments.

#ifndef LARGEOUT_CUSTOM_OPS_KERNELS_ROW_UPDATE_OP_H_
#define LARGEOUT_CUSTOM_OPS_KERNELS_ROW_UPDATE_OP_H_

#include <vector>

#include "custom_ops/kernels/largeout_op.h"
#include "tensorflow/core/framework/resource_var.h"

namespace largeout {

// The inputs of an optimizer op: the variable's handle, the slots' handles, values, ids,
// scalars. Checked, and all variables are locked.
struct RowUpdateInputs {
  tensorflow::OpKernelContext* ctx;
  tensorflow::Tensor variable;            // [num_rows, ...]
  std::vector<tensorflow::Tensor> slots;  // in input order
  int first_scalar;

  int64_t num_rows() const { return variable.dim_size(0); }
  int64_t dim() const { return num_rows() == 0 ? 0 : variable.NumElements() / num_rows(); }
  const tensorflow::Tensor& ids() const { return ctx->input(first_scalar - 1); }
  const float* values() const { return ctx->input(first_scalar - 2).flat<float>().data(); }

  // The value of a scalar on the CPU; where it stands, wherever that is.
  template <typename T>
  void Scalar(int index, T* value) const {
    *value = ctx->input(first_scalar + index).scalar<T>()();
  }
  template <typename T>
  void Scalar(int index, const T** place) const {
    *place = ctx->input(first_scalar + index).flat<T>().data();
  }

  // The slot's memory if it has the dtype and the shape: that of the variable,
  // or [num_rows].
  template <typename T>
  absl::Status FullSlot(int slot, T** data) const {
    return Slot(slot, variable.shape(), data);
  }
  template <typename T>
  absl::Status PerRowSlot(int slot, T** data) const {
    return Slot(slot, {num_rows()}, data);
  }

 private:
  template <typename T>
  absl::Status Slot(int slot, const tensorflow::TensorShape& shape, T** data) const {
    tensorflow::Tensor tensor = slots[slot];
    if (tensor.dtype() != tensorflow::DataTypeToEnum<T>::value || tensor.shape() != shape) {
      return absl::InvalidArgumentError(absl::StrCat(
          "an optimizer slot must be ",
          tensorflow::DataTypeString(tensorflow::DataTypeToEnum<T>::value), " of shape ",
          shape.DebugString(), ", but is ", tensorflow::DataTypeString(tensor.dtype()),
          " of shape ", tensor.shape().DebugString()));
    }
    *data = tensor.flat<T>().data();
    return absl::OkStatus();
  }
};

// A subclass reads the arguments and runs the step on its device.
class RowUpdateOp : public LargeoutOp {
 public:
  explicit RowUpdateOp(tensorflow::OpKernelConstruction* ctx);
  void Run(tensorflow::OpKernelContext* ctx) final;

 protected:
  // An error must come before the first write.
  virtual absl::Status Update(const RowUpdateInputs& inputs) = 0;

  // Copies a variable on the op's device, in order with the op's work. `to` is allocated.
  virtual absl::Status Copy(tensorflow::OpKernelContext* ctx, const tensorflow::Tensor& from,
                            tensorflow::Tensor* to) = 0;

 private:
  absl::Status CheckShapes(const RowUpdateInputs& inputs) const;

  int num_resources_ = 0;
};

// OK if `ids` is [n] with n < 2^31.
absl::Status CheckRowIdsShape(const tensorflow::Tensor& ids);

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_KERNELS_ROW_UPDATE_OP_H_
