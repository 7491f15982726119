// The inputs of the ops that update rows.

#ifndef LARGEOUT_CUSTOM_OPS_KERNELS_ROW_UPDATE_INPUTS_H_
#define LARGEOUT_CUSTOM_OPS_KERNELS_ROW_UPDATE_INPUTS_H_

#include <limits>

#include "custom_ops/core/base/bfloat16_rows.h"
#include "custom_ops/kernels/checks.h"
#include "custom_ops/kernels/largeout_op.h"
#include "custom_ops/kernels/variable_locks.h"

namespace largeout {

// OK if `ids` is [n] with n < 2^31.
inline absl::Status CheckRowIdsShape(const tensorflow::Tensor& ids) {
  if (ids.dims() == 1 && ids.NumElements() <= std::numeric_limits<int32_t>::max()) {
    return absl::OkStatus();
  }
  return WrongShape(ids, "ids", "[n] with n < 2^31");
}

// The inputs of an optimizer op: the variable's handle, the slots' handles, values, ids,
// scalars, and `rounding` for a variable in bfloat16. Holds the locks of all variables during
// its lifetime.
class RowUpdateInputs {
 public:
  // Locks the variables for writing in place, and checks the shapes of all inputs but the
  // slots.
  absl::Status Read(tensorflow::OpKernelContext* context) {
    ctx = context;
    TF_RETURN_IF_ERROR(ctx->input_list("rounding", &rounding_));
    if (rounding_.size() > 1) {
      return absl::InvalidArgumentError("rounding must be one tensor or none");
    }
    TF_RETURN_IF_ERROR(CheckDistinctVariables(ctx));
    while (ctx->input_dtype(variables_.size()) == tensorflow::DT_RESOURCE) {
      TF_RETURN_IF_ERROR(variables_.Find(ctx, ctx->input(variables_.size())));
    }
    variables_.Lock();
    TF_RETURN_IF_ERROR(variables_.AllowWrites(ctx, CopyOnHost));
    return CheckShapes();
  }

  int64_t num_rows() const { return variable().dim_size(0); }
  int64_t dim() const { return num_rows() == 0 ? 0 : variable().NumElements() / num_rows(); }
  // Null if the variable is in bfloat16.
  float* variable_data() const {
    return rounding_.size() > 0 ? nullptr : variables_.tensor(0)->flat<float>().data();
  }
  // Without rows if the variable is float32.
  RoundedRows rounded() const {
    if (rounding_.size() == 0) return {};
    const auto seed_and_step = rounding_[0].flat<int64_t>();
    return {
        reinterpret_cast<uint16_t*>(variables_.tensor(0)->flat<tensorflow::bfloat16>().data()),
        static_cast<uint64_t>(seed_and_step(0)), static_cast<uint64_t>(seed_and_step(1))};
  }
  const LockedVariables& variables() const { return variables_; }
  int num_slots() const { return variables_.size() - 1; }
  const tensorflow::Tensor& ids() const { return ctx->input(first_scalar() - 1); }
  const float* values() const { return ctx->input(first_scalar() - 2).flat<float>().data(); }

  // The value of a scalar.
  template <typename T>
  void Scalar(int index, T* value) const {
    *value = ctx->input(first_scalar() + index).scalar<T>()();
  }

  // The slot's memory, if it has the right dtype and shape: that of the variable, or
  // [num_rows].
  template <typename T>
  absl::Status FullSlot(int slot, T** data) const {
    return Slot(slot, variable().shape(), data);
  }
  template <typename T>
  absl::Status PerRowSlot(int slot, T** data) const {
    return Slot(slot, {num_rows()}, data);
  }

  tensorflow::OpKernelContext* ctx = nullptr;

 private:
  const tensorflow::Tensor& variable() const { return *variables_.tensor(0); }
  int first_scalar() const { return variables_.size() + 2; }

  template <typename T>
  absl::Status Slot(int slot, const tensorflow::TensorShape& shape, T** data) const {
    tensorflow::Tensor* tensor = variables_.tensor(1 + slot);
    TF_RETURN_IF_ERROR(CheckVariable(*tensor, "an optimizer slot",
                                     tensorflow::DataTypeToEnum<T>::value, shape));
    *data = tensor->flat<T>().data();
    return absl::OkStatus();
  }

  absl::Status CheckShapes() const {
    for (int i = 0; i < variables_.size(); ++i) {
      if (variables_.tensor(i)->IsInitialized()) continue;
      return absl::FailedPreconditionError("the variable or a slot is not initialized");
    }
    const bool rounds = rounding_.size() > 0;
    const auto dtype = rounds ? tensorflow::DT_BFLOAT16 : tensorflow::DT_FLOAT;
    if (variable().dtype() != dtype || variable().dims() < 1) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the variable must be ", rounds ? "bfloat16" : "float32",
          " of rank 1 or more, but is ", tensorflow::DataTypeString(variable().dtype()),
          " of shape ", variable().shape().DebugString(), "; `rounding` is for bfloat16 only"));
    }
    if (rounds) {
      TF_RETURN_IF_ERROR(CheckShape(rounding_[0], "rounding", tensorflow::TensorShape({2})));
    }
    TF_RETURN_IF_ERROR(CheckRowIdsShape(ids()));
    tensorflow::TensorShape expected = variable().shape();
    TF_RETURN_IF_ERROR(expected.SetDimWithStatus(0, ids().NumElements()));
    TF_RETURN_IF_ERROR(CheckShape(ctx->input(first_scalar() - 2), "values", expected));
    for (int i = first_scalar(); i < ctx->num_inputs() - rounding_.size(); ++i) {
      TF_RETURN_IF_ERROR(CheckScalar(ctx->input(i), "a hyperparameter"));
    }
    return absl::OkStatus();
  }

  LockedVariables variables_;         // the variable, and the slots in input order
  tensorflow::OpInputList rounding_;  // none, or [seed, step]
};

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_KERNELS_ROW_UPDATE_INPUTS_H_
