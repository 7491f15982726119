#define EIGEN_USE_THREADS

#include "custom_ops/kernels/row_update_op.h"

#include <limits>
#include <numeric>

#include "custom_ops/kernels/largeout_op.h"
#include "custom_ops/kernels/write_in_place.h"
#include "tensorflow/core/kernels/training_op_helpers.h"

namespace largeout {
namespace {

using tensorflow::DT_FLOAT;
using tensorflow::DT_RESOURCE;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::Var;

absl::Status CheckVariable(const Tensor& variable) {
  if (!variable.IsInitialized()) {
    return absl::FailedPreconditionError("the variable or a slot is not initialized");
  }
  if (variable.dtype() != DT_FLOAT || variable.dims() < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("the variable must be float32 of rank 1 or more, but is ",
                     tensorflow::DataTypeString(variable.dtype()), " of shape ",
                     variable.shape().DebugString()));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckRowIdsShape(const Tensor& ids) {
  if (ids.dims() == 1 && ids.NumElements() <= std::numeric_limits<int32_t>::max()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "ids must have shape [n] with n < 2^31, but has ", ids.shape().DebugString()));
}

RowUpdateOp::RowUpdateOp(OpKernelConstruction* ctx) : LargeoutOp(ctx) {
  while (ctx->input_type(num_resources_) == DT_RESOURCE) ++num_resources_;
}

void RowUpdateOp::Run(OpKernelContext* ctx) {
  OP_REQUIRES_OK(ctx, CheckDistinctVariables(ctx));
  std::vector<int> resources(num_resources_);
  std::iota(resources.begin(), resources.end(), 0);
  std::vector<tensorflow::core::RefCountPtr<Var>> variables(num_resources_);
  for (int i : resources) {
    OP_REQUIRES_OK(ctx,
                   LookupResource(ctx, tensorflow::HandleFromInput(ctx, i), &variables[i]));
  }
  // Takes the locks and nothing else (sparse=false): the device of the template does not
  // matter, and what it would do with a GPU's is not in TensorFlow's CPU packages.
  const auto locks =
      tensorflow::MaybeLockVariableInputMutexesInOrder<Eigen::ThreadPoolDevice, float>(
          ctx, /*do_lock=*/true, /*sparse=*/false, resources);

  RowUpdateInputs inputs{ctx, {}, {}, num_resources_ + 2};
  for (int i : resources) {
    OP_REQUIRES_OK(
        ctx, AllowWritesInPlace(ctx, variables[i].get(), [&](const Tensor& from, Tensor* to) {
          return Copy(ctx, from, to);
        }));
    if (i == 0) {
      inputs.variable = *variables[i]->tensor();
    } else {
      inputs.slots.push_back(*variables[i]->tensor());
    }
  }
  OP_REQUIRES_OK(ctx, CheckShapes(inputs));
  OP_REQUIRES_OK(ctx, CheckRowIdsShape(inputs.ids()));
  OP_REQUIRES_OK(ctx, Update(inputs));
}

absl::Status RowUpdateOp::CheckShapes(const RowUpdateInputs& inputs) const {
  TF_RETURN_IF_ERROR(CheckVariable(inputs.variable));
  const Tensor& values = inputs.ctx->input(num_resources_);
  tensorflow::TensorShape expected = inputs.variable.shape();
  TF_RETURN_IF_ERROR(expected.SetDimWithStatus(0, inputs.ids().NumElements()));
  if (values.shape() != expected) {
    return absl::InvalidArgumentError(absl::StrCat(
        "values must have shape ", expected.DebugString(), " for a variable of shape ",
        inputs.variable.shape().DebugString(), " and ", inputs.ids().NumElements(),
        " ids, but has ", values.shape().DebugString()));
  }
  for (int i = inputs.first_scalar; i < num_inputs(); ++i) {
    if (inputs.ctx->input(i).dims() != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("hyperparameters must be scalars, but input ", i, " has shape ",
                       inputs.ctx->input(i).shape().DebugString()));
    }
  }
  return absl::OkStatus();
}

}  // namespace largeout
