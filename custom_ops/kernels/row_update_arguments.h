// The arguments of the optimizer steps out of the inputs of their ops, on both devices.
//
// Arguments: AdamArguments and so on of core/row_update_rules.h with values of scalars, or
// AdamStep and so on of cuda/row_update.h with their places; the members have the same names.

#ifndef LARGEOUT_CUSTOM_OPS_KERNELS_ROW_UPDATE_ARGUMENTS_H_
#define LARGEOUT_CUSTOM_OPS_KERNELS_ROW_UPDATE_ARGUMENTS_H_

#include "custom_ops/kernels/row_update_op.h"

namespace largeout {

inline float* VariableOf(const RowUpdateInputs& inputs) {
  tensorflow::Tensor variable = inputs.variable;
  return variable.flat<float>().data();
}

template <class Arguments>
absl::Status ReadAdam(const RowUpdateInputs& inputs, bool has_momentum, Arguments* arguments) {
  arguments->variable = VariableOf(inputs);
  size_t slot = 0;
  if (has_momentum) TF_RETURN_IF_ERROR(inputs.FullSlot(slot++, &arguments->momentum));
  TF_RETURN_IF_ERROR(inputs.FullSlot(slot++, &arguments->velocity));
  if (slot < inputs.slots.size()) {
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

template <class Arguments>
absl::Status ReadAdagrad(const RowUpdateInputs& inputs, bool one_a_row, Arguments* arguments) {
  arguments->variable = VariableOf(inputs);
  TF_RETURN_IF_ERROR(one_a_row ? inputs.PerRowSlot(0, &arguments->accumulator)
                               : inputs.FullSlot(0, &arguments->accumulator));
  inputs.Scalar(0, &arguments->learning_rate);
  inputs.Scalar(1, &arguments->epsilon);
  inputs.Scalar(2, &arguments->weight_decay);
  return absl::OkStatus();
}

template <class Arguments>
absl::Status ReadMomentum(const RowUpdateInputs& inputs, Arguments* arguments) {
  arguments->variable = VariableOf(inputs);
  if (!inputs.slots.empty()) {
    TF_RETURN_IF_ERROR(inputs.FullSlot(0, &arguments->momentum));
  }
  inputs.Scalar(0, &arguments->learning_rate);
  inputs.Scalar(1, &arguments->decay);
  inputs.Scalar(2, &arguments->weight_decay);
  return absl::OkStatus();
}

// Each op once, for a device: Base is a RowUpdateOp with
// `Step(const RowUpdateInputs&, const Arguments&)`.
template <class Base, class Arguments>
class RowAdamOp : public Base {
 public:
  explicit RowAdamOp(tensorflow::OpKernelConstruction* ctx) : Base(ctx) {
    int num_last_step = 0;
    OP_REQUIRES_OK(ctx, ctx->GetAttr("num_momentum", &num_momentum_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("num_last_step", &num_last_step));
    OP_REQUIRES(ctx, num_momentum_ <= 1 && num_last_step <= 1,
                absl::InvalidArgumentError(absl::StrCat(
                    "momentum and last_step must be one variable each or none, but are ",
                    num_momentum_, " and ", num_last_step)));
  }

 protected:
  absl::Status Update(const RowUpdateInputs& inputs) override {
    Arguments arguments{};
    TF_RETURN_IF_ERROR(ReadAdam(inputs, num_momentum_ > 0, &arguments));
    return this->Step(inputs, arguments);
  }

 private:
  int num_momentum_ = 1;
};

template <class Base, class Arguments, bool one_accumulator_a_row>
class RowAdagradOp : public Base {
 public:
  using Base::Base;

 protected:
  absl::Status Update(const RowUpdateInputs& inputs) override {
    Arguments arguments{};
    TF_RETURN_IF_ERROR(ReadAdagrad(inputs, one_accumulator_a_row, &arguments));
    return this->Step(inputs, arguments);
  }
};

template <class Base, class Arguments>
class RowMomentumOp : public Base {
 public:
  explicit RowMomentumOp(tensorflow::OpKernelConstruction* ctx) : Base(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("nesterov", &nesterov_));
  }

 protected:
  absl::Status Update(const RowUpdateInputs& inputs) override {
    Arguments arguments{};
    TF_RETURN_IF_ERROR(ReadMomentum(inputs, &arguments));
    arguments.nesterov = nesterov_;
    return this->Step(inputs, arguments);
  }

 private:
  bool nesterov_ = false;
};

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_KERNELS_ROW_UPDATE_ARGUMENTS_H_
