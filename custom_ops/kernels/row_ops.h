// The ops that update or merge rows, for every device.
//
// A Device has
//   Adam, Adagrad, RowwiseAdagrad, Momentum: the arguments of a step of an optimizer, from
//     core/optimizers/row_update_rules.h or cuda/row_update.h; the members have the same names;
// and these static members; the functions return a status:
//   kUsesHugePages: whether the variables are in host memory;
//   kRounds: whether the variable may be in bfloat16;
//   Update(inputs, arguments): one step. Errors come before the first write;
//   CheckIds(ids, num_rows): checks ids, whose shape is already checked, as far as the device
//     allows;
//   Merge(ctx, values, ids): allocates and writes the outputs of LargeoutMergeRows;
//   Copy(ctx, from, to): copies a variable, in order with the op's work.

#ifndef LARGEOUT_CUSTOM_OPS_KERNELS_ROW_OPS_H_
#define LARGEOUT_CUSTOM_OPS_KERNELS_ROW_OPS_H_

#include <limits>

#include "custom_ops/core/base/bfloat16_rows.h"
#include "custom_ops/kernels/checks.h"
#include "custom_ops/kernels/huge_pages.h"
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
  // slots. rounds: whether the variable may be in bfloat16.
  template <class Copy>
  absl::Status Read(tensorflow::OpKernelContext* context, bool rounds, const Copy& copy) {
    ctx = context;
    TF_RETURN_IF_ERROR(ctx->input_list("rounding", &rounding_));
    if (rounding_.size() > (rounds ? 1 : 0)) {
      return absl::InvalidArgumentError(
          rounds ? "rounding must be one tensor or none"
                 : "rows in bfloat16 are updated on the CPU only: create the layer in "
                   "`with tf.device('CPU'):`");
    }
    TF_RETURN_IF_ERROR(CheckDistinctVariables(ctx));
    while (ctx->input_dtype(variables_.size()) == tensorflow::DT_RESOURCE) {
      TF_RETURN_IF_ERROR(variables_.Find(ctx, ctx->input(variables_.size())));
    }
    variables_.Lock();
    TF_RETURN_IF_ERROR(variables_.AllowWrites(ctx, copy));
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

  // The value of a scalar on the CPU, or a pointer to it on any device.
  template <typename T>
  void Scalar(int index, T* value) const {
    *value = ctx->input(first_scalar() + index).scalar<T>()();
  }
  template <typename T>
  void Scalar(int index, const T** place) const {
    *place = ctx->input(first_scalar() + index).flat<T>().data();
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

// Readers of the attributes and inputs of the ops, one class per optimizer.

class AdamReader {
 public:
  absl::Status ReadAttributes(tensorflow::OpKernelConstruction* ctx) {
    int num_last_step = 0;
    TF_RETURN_IF_ERROR(ctx->GetAttr("num_momentum", &num_momentum_));
    TF_RETURN_IF_ERROR(ctx->GetAttr("num_last_step", &num_last_step));
    if (num_momentum_ <= 1 && num_last_step <= 1) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("momentum and last_step must be one variable each or none, but are ",
                     num_momentum_, " and ", num_last_step));
  }

  template <class Arguments>
  absl::Status Read(const RowUpdateInputs& inputs, Arguments* arguments) const {
    int slot = 0;
    if (num_momentum_ > 0) {
      TF_RETURN_IF_ERROR(inputs.FullSlot(slot++, &arguments->momentum));
    }
    TF_RETURN_IF_ERROR(inputs.FullSlot(slot++, &arguments->velocity));
    if (slot < inputs.num_slots()) {
      TF_RETURN_IF_ERROR(inputs.PerRowSlot(slot, &arguments->last_step));
    }
    inputs.Scalar(0, &arguments->step);
    inputs.Scalar(1, &arguments->step_size);
    inputs.Scalar(2, &arguments->beta_1);
    inputs.Scalar(3, &arguments->beta_2);
    inputs.Scalar(4, &arguments->epsilon);
    inputs.Scalar(5, &arguments->weight_decay);
    return absl::OkStatus();
  }

 private:
  int num_momentum_ = 1;
};

template <bool kOnePerRow>
struct AdagradReader {
  absl::Status ReadAttributes(tensorflow::OpKernelConstruction*) { return absl::OkStatus(); }

  template <class Arguments>
  absl::Status Read(const RowUpdateInputs& inputs, Arguments* arguments) const {
    TF_RETURN_IF_ERROR(kOnePerRow ? inputs.PerRowSlot(0, &arguments->accumulator)
                                  : inputs.FullSlot(0, &arguments->accumulator));
    inputs.Scalar(0, &arguments->learning_rate);
    inputs.Scalar(1, &arguments->epsilon);
    inputs.Scalar(2, &arguments->weight_decay);
    return absl::OkStatus();
  }
};

class MomentumReader {
 public:
  absl::Status ReadAttributes(tensorflow::OpKernelConstruction* ctx) {
    return ctx->GetAttr("nesterov", &nesterov_);
  }

  template <class Arguments>
  absl::Status Read(const RowUpdateInputs& inputs, Arguments* arguments) const {
    if (inputs.num_slots() > 0) {
      TF_RETURN_IF_ERROR(inputs.FullSlot(0, &arguments->momentum));
    }
    inputs.Scalar(0, &arguments->learning_rate);
    inputs.Scalar(1, &arguments->decay);
    inputs.Scalar(2, &arguments->weight_decay);
    arguments->nesterov = nesterov_;
    return absl::OkStatus();
  }

 private:
  bool nesterov_ = false;
};

// One step of an optimizer. Reader: see above. Arguments: those of the Device for this
// optimizer.
template <class Device, class Reader, class Arguments>
class RowUpdateOp : public LargeoutOp {
 public:
  explicit RowUpdateOp(tensorflow::OpKernelConstruction* ctx) : LargeoutOp(ctx) {
    OP_REQUIRES_OK(ctx, reader_.ReadAttributes(ctx));
  }

  void Run(tensorflow::OpKernelContext* ctx) override {
    RowUpdateInputs inputs;
    OP_REQUIRES_OK(ctx, inputs.Read(ctx, Device::kRounds, [&](const auto& from, auto* to) {
      return Device::Copy(ctx, from, to);
    }));
    if (Device::kUsesHugePages) {
      for (int i = 0; i < inputs.variables().size(); ++i) {
        huge_pages_.Ask(*inputs.variables().tensor(i));
      }
    }
    Arguments arguments{};
    arguments.variable = inputs.variable_data();
    OP_REQUIRES_OK(ctx, reader_.Read(inputs, &arguments));
    OP_REQUIRES_OK(ctx, Device::CheckIds(inputs.ids(), inputs.num_rows()));
    OP_REQUIRES_OK(ctx, Device::Update(inputs, arguments));
  }

 private:
  Reader reader_;
  HugePages huge_pages_;
};

template <class Device>
class MergeRowsOp : public LargeoutOp {
 public:
  using LargeoutOp::LargeoutOp;

  void Run(tensorflow::OpKernelContext* ctx) override {
    const tensorflow::Tensor &values = ctx->input(0), &ids = ctx->input(1);
    OP_REQUIRES_OK(ctx, CheckRowIdsShape(ids));
    OP_REQUIRES(ctx, values.dims() >= 1 && values.dim_size(0) == ids.NumElements(),
                WrongShape(values, "values", "[n, ...] for n = ", ids.NumElements(), " ids"));
    OP_REQUIRES_OK(ctx, Device::CheckIds(ids, std::numeric_limits<int64_t>::max()));
    OP_REQUIRES_OK(ctx, Device::Merge(ctx, values, ids));
  }
};

template <class Device>
class CheckRowIdsOp : public LargeoutOp {
 public:
  using LargeoutOp::LargeoutOp;

  void Run(tensorflow::OpKernelContext* ctx) override {
    OP_REQUIRES_OK(ctx, CheckScalar(ctx->input(1), "num_rows"));
    OP_REQUIRES_OK(ctx, CheckRowIdsShape(ctx->input(0)));
    OP_REQUIRES_OK(ctx, Device::CheckIds(ctx->input(0), ctx->input(1).scalar<int64_t>()()));
    ctx->set_output(0, ctx->input(0));
  }
};

// Registers the ops with a Device for the TensorFlow device `name`.
#define LARGEOUT_REGISTER_ROW_UPDATE(name, op, Functions, Reader, Arguments) \
  REGISTER_KERNEL_BUILDER(Name(op).Device(name),                             \
                          RowUpdateOp<Functions, Reader, Functions::Arguments>)
#define LARGEOUT_REGISTER_ROW_OPS(name, Functions)                                          \
  LARGEOUT_REGISTER_ROW_UPDATE(name, "LargeoutRowAdam", Functions, AdamReader, Adam);       \
  LARGEOUT_REGISTER_ROW_UPDATE(name, "LargeoutRowAdagrad", Functions, AdagradReader<false>, \
                               Adagrad);                                                    \
  LARGEOUT_REGISTER_ROW_UPDATE(name, "LargeoutRowRowwiseAdagrad", Functions,                \
                               AdagradReader<true>, RowwiseAdagrad);                        \
  LARGEOUT_REGISTER_ROW_UPDATE(name, "LargeoutRowMomentum", Functions, MomentumReader,      \
                               Momentum);                                                   \
  REGISTER_KERNEL_BUILDER(Name("LargeoutMergeRows").Device(name), MergeRowsOp<Functions>);  \
  REGISTER_KERNEL_BUILDER(Name("LargeoutCheckRowIds").Device(name).HostMemory("num_rows"),  \
                          CheckRowIdsOp<Functions>)

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_KERNELS_ROW_OPS_H_
