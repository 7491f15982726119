#define EIGEN_USE_THREADS

#include "custom_ops/kernels/row_update_op.h"

#include <limits>
#include <numeric>

#include "custom_ops/kernels/intra_op_parallel.h"
#include "tensorflow/core/kernels/training_op_helpers.h"

namespace largeout {
namespace {

using tensorflow::DT_FLOAT;
using tensorflow::DT_INT64;
using tensorflow::DT_RESOURCE;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::Var;
using CpuDevice = Eigen::ThreadPoolDevice;

template <typename Index>
absl::Status CheckIds(const Tensor& ids, int64_t num_rows) {
  const Index* data = ids.flat<Index>().data();
  const int64_t bad = FindIdOutOfRange(data, ids.NumElements(), num_rows);
  if (bad < 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "ids[", bad, "] = ", data[bad], " is not a row: expected 0 <= id < ", num_rows));
}

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

absl::Status CheckRowIds(const Tensor& ids, int64_t num_rows) {
  if (ids.dims() != 1 || ids.NumElements() > std::numeric_limits<int32_t>::max()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "ids must have shape [n] with n < 2^31, but has ", ids.shape().DebugString()));
  }
  return ids.dtype() == DT_INT64 ? CheckIds<int64_t>(ids, num_rows)
                                 : CheckIds<int32_t>(ids, num_rows);
}

MergedRows MergeRowIds(const Tensor& ids, const ParallelFor& parallel_for) {
  return ids.dtype() == DT_INT64
             ? MergeRows(ids.flat<int64_t>().data(), ids.NumElements(), parallel_for)
             : MergeRows(ids.flat<int32_t>().data(), ids.NumElements(), parallel_for);
}

RowUpdateOp::RowUpdateOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
  while (ctx->input_type(num_resources_) == DT_RESOURCE) ++num_resources_;
}

void RowUpdateOp::Compute(OpKernelContext* ctx) {
  OP_REQUIRES_OK(ctx, AllowSparseAccess(ctx));
  std::vector<int> resources(num_resources_);
  std::iota(resources.begin(), resources.end(), 0);
  const auto locks = tensorflow::MaybeLockVariableInputMutexesInOrder<CpuDevice, float>(
      ctx, /*do_lock=*/true, /*sparse=*/true, resources);

  Inputs inputs{ctx, {}, {}, num_resources_ + 2};
  for (int i : resources) {
    Tensor tensor;
    OP_REQUIRES_OK(ctx, (tensorflow::GetInputTensorFromVariable<CpuDevice, float>(
                            ctx, i, /*lock_held=*/true, /*sparse=*/true, &tensor)));
    if (i == 0) {
      inputs.variable = tensor;
    } else {
      inputs.slots.push_back(tensor);
    }
  }
  OP_REQUIRES_OK(ctx, CheckShapes(inputs));
  const Tensor& ids = ctx->input(num_resources_ + 1);
  OP_REQUIRES_OK(ctx, CheckRowIds(ids, inputs.num_rows()));

  const ParallelFor parallel_for = IntraOpParallel(ctx);
  const MergedRows merged = MergeRowIds(ids, parallel_for);
  const int64_t dim =
      inputs.num_rows() == 0 ? 0 : inputs.variable.NumElements() / inputs.num_rows();
  OP_REQUIRES_OK(ctx, Update(inputs, merged, ctx->input(num_resources_).flat<float>().data(),
                             dim, parallel_for));
}

// Variables must be in copy-on-read mode before they are written in place.
absl::Status RowUpdateOp::AllowSparseAccess(OpKernelContext* ctx) const {
  for (int i = 0; i < num_resources_; ++i) {
    tensorflow::core::RefCountPtr<Var> variable;
    TF_RETURN_IF_ERROR(LookupResource(ctx, tensorflow::HandleFromInput(ctx, i), &variable));
    const bool is_int64 = variable->tensor()->dtype() == DT_INT64;
    TF_RETURN_IF_ERROR(
        is_int64
            ? tensorflow::EnsureSparseVariableAccess<CpuDevice, int64_t>(ctx, variable.get())
            : tensorflow::EnsureSparseVariableAccess<CpuDevice, float>(ctx, variable.get()));
  }
  return absl::OkStatus();
}

absl::Status RowUpdateOp::CheckShapes(const Inputs& inputs) const {
  TF_RETURN_IF_ERROR(CheckVariable(inputs.variable));
  const Tensor& values = inputs.ctx->input(num_resources_);
  const Tensor& ids = inputs.ctx->input(num_resources_ + 1);
  tensorflow::TensorShape expected = inputs.variable.shape();
  expected.set_dim(0, ids.NumElements());
  if (values.shape() != expected) {
    return absl::InvalidArgumentError(absl::StrCat(
        "values must have shape ", expected.DebugString(), " for a variable of shape ",
        inputs.variable.shape().DebugString(), " and ", ids.NumElements(), " ids, but has ",
        values.shape().DebugString()));
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
