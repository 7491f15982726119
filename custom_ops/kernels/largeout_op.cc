#include "custom_ops/kernels/largeout_op.h"

#include <limits>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/resource_var.h"

namespace largeout {
namespace {

using tensorflow::OpKernelContext;
using tensorflow::errors::InvalidArgument;

bool IsHandle(const OpKernelContext& ctx, int input) {
  return ctx.input_dtype(input) == tensorflow::DT_RESOURCE;
}

absl::Status CheckHandles(OpKernelContext* ctx) {
  for (int i = 0; i < ctx->num_inputs(); ++i) {
    if (!IsHandle(*ctx, i) || ctx->input(i).dims() == 0) continue;
    return InvalidArgument("input ", i, " must be the handle of one variable, a scalar, got ",
                           "handles of shape ", ctx->input(i).shape().DebugString());
  }
  return absl::OkStatus();
}

absl::Status OutOfMemory(const tensorflow::OpKernel& op, OpKernelContext* ctx) {
  std::string inputs;
  for (int i = 0; i < ctx->num_inputs(); ++i) {
    inputs += (i > 0 ? ", " : "") + tensorflow::DataTypeString(ctx->input_dtype(i));
    if (!IsHandle(*ctx, i)) inputs += ctx->input(i).shape().DebugString();
  }
  return tensorflow::errors::ResourceExhausted(
      "out of memory for the scratch of ", op.type_string(), " on inputs ", inputs,
      " with attributes ", tensorflow::SummarizeAttrs(op.def()),
      ": process less at once, for example a smaller batch");
}

}  // namespace

void LargeoutOp::Compute(OpKernelContext* ctx) {
  OP_REQUIRES_OK(ctx, CheckHandles(ctx));
  try {
    Run(ctx);
  } catch (const std::bad_alloc&) {
    OP_REQUIRES_OK(ctx, OutOfMemory(*this, ctx));
  } catch (const std::length_error&) {  // from std::vector: larger than any memory
    OP_REQUIRES_OK(ctx, OutOfMemory(*this, ctx));
  }
}

absl::Status ReadCount(tensorflow::OpKernelConstruction* ctx, const char* name,
                       int64_t* count) {
  TF_RETURN_IF_ERROR(ctx->GetAttr(name, count));
  return CheckCount(name, *count);
}

absl::Status CheckCount(const char* name, int64_t count) {
  if (count >= 1 && count <= std::numeric_limits<int32_t>::max()) return absl::OkStatus();
  return InvalidArgument(name, " must be at least 1 and less than 2^31, got ", count);
}

absl::Status CheckDistinctVariables(OpKernelContext* ctx) {
  std::vector<std::pair<const tensorflow::Var*, int>> variables;
  for (int i = 0; i < ctx->num_inputs(); ++i) {
    if (!IsHandle(*ctx, i)) continue;
    tensorflow::core::RefCountPtr<tensorflow::Var> variable;
    TF_RETURN_IF_ERROR(
        tensorflow::LookupResource(ctx, tensorflow::HandleFromInput(ctx, i), &variable));
    for (const auto& [other, input] : variables) {
      if (other != variable.get()) continue;
      return InvalidArgument("inputs ", input, " and ", i,
                             " are the same variable: they must be different variables");
    }
    variables.emplace_back(variable.get(), i);
  }
  return absl::OkStatus();
}

}  // namespace largeout
