// Some of TensorFlow's ops for the emulated GPU. TensorFlow has their GPU kernels only in its
// packages for GPUs. Without them, a variable on the GPU could not be initialised or gathered
// from, and the CPU would add gradients in device memory, which it must not access. All other
// ops without GPU kernels run on the CPU, on copies of their inputs.

#include <cstring>

#include "custom_ops/cuda/memory.h"
#include "custom_ops/emulated_gpu/emulated_launch.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/resource_var.h"

namespace largeout {
namespace cuda {
namespace {

using tensorflow::DEVICE_GPU;
using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

template <class Index>
struct GatherBody {
  const char* rows;
  int64_t num_rows;
  int64_t row_bytes;
  const Index* ids;
  char* gathered;

  // As in TensorFlow: zeros for an index out of range.
  void operator()(int64_t i) const {
    const int64_t id = ids[i];
    if (id >= 0 && id < num_rows) {
      std::memcpy(gathered + i * row_bytes, rows + id * row_bytes, row_bytes);
    } else {
      std::memset(gathered + i * row_bytes, 0, row_bytes);
    }
  }
};

template <class Index>
class ResourceGatherOp : public OpKernel {
 public:
  explicit ResourceGatherOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    int batch_dims;
    OP_REQUIRES_OK(ctx, ctx->GetAttr("batch_dims", &batch_dims));
    OP_REQUIRES(ctx, batch_dims == 0, absl::UnimplementedError("batch_dims"));
  }

  void Compute(OpKernelContext* ctx) override {
    tensorflow::core::RefCountPtr<tensorflow::Var> variable;
    OP_REQUIRES_OK(
        ctx, tensorflow::LookupResource(ctx, tensorflow::HandleFromInput(ctx, 0), &variable));
    const tensorflow::tf_shared_lock lock(*variable->mu());
    const Tensor& rows = *variable->tensor();
    const Tensor& ids = ctx->input(1);
    tensorflow::TensorShape shape = ids.shape();
    for (int d = 1; d < rows.dims(); ++d) shape.AddDim(rows.dim_size(d));
    Tensor* gathered;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, shape, &gathered));
    if (gathered->NumElements() == 0) return;
    const auto row_bytes = static_cast<int64_t>(gathered->TotalBytes()) / ids.NumElements();
    const GatherBody<Index> body = {static_cast<const char*>(rows.data()), rows.dim_size(0),
                                    row_bytes, ids.flat<Index>().data(),
                                    static_cast<char*>(gathered->data())};
    const Status status = ForEach(ids.NumElements(), body, nullptr);
    OP_REQUIRES(ctx, status == kOk, absl::InternalError(StatusText(status)));
  }
};

template <class T>
struct AddBody {
  const T* value;
  T sign;
  T* sum;

  void operator()(int64_t i) const { sum[i] += sign * value[i]; }
};

constexpr Status kInvalidValue = 1;  // cudaErrorInvalidValue

// Replaces the value of the variable of input 0 by a copy that `change(old, bytes of the copy)`
// has changed. A copy, because a tensor that was read from the variable may share its memory.
template <class Change>
void AssignChangedCopy(OpKernelContext* ctx, const Change& change) {
  tensorflow::core::RefCountPtr<tensorflow::Var> variable;
  OP_REQUIRES_OK(
      ctx, tensorflow::LookupResource(ctx, tensorflow::HandleFromInput(ctx, 0), &variable));
  const tensorflow::mutex_lock lock(*variable->mu());
  const Tensor old = *variable->tensor();
  Tensor copy;
  OP_REQUIRES_OK(ctx, ctx->allocate_temp(old.dtype(), old.shape(), &copy));
  const auto bytes = static_cast<int64_t>(old.TotalBytes());
  Status status = CopyBytes(old.data(), bytes, copy.data(), nullptr);
  if (status == kOk) status = change(old, static_cast<char*>(copy.data()));
  OP_REQUIRES(ctx, status == kOk, absl::InternalError(StatusText(status)));
  *variable->tensor() = copy;
}

template <class T, int kSign>
class AssignAddOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* ctx) override {
    const Tensor& value = ctx->input(1);
    AssignChangedCopy(ctx, [&value](const Tensor& old, char* sum) {
      if (old.shape() != value.shape()) return kInvalidValue;
      const AddBody<T> body = {value.flat<T>().data(), T{kSign}, reinterpret_cast<T*>(sum)};
      return ForEach(value.NumElements(), body, nullptr);
    });
  }
};

template <class Index>
struct ScatterBody {
  const char* updates;
  int64_t row_bytes;
  const Index* ids;
  int64_t num_rows;
  char* rows;

  void operator()(int64_t i) const {
    if (ids[i] < 0 || ids[i] >= num_rows) return;
    std::memcpy(rows + ids[i] * row_bytes, updates + i * row_bytes, row_bytes);
  }
};

template <class Index>
class ResourceScatterUpdateOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* ctx) override {
    const Tensor &ids = ctx->input(1), &updates = ctx->input(2);
    AssignChangedCopy(ctx, [&ids, &updates](const Tensor& old, char* rows) {
      const int64_t num_rows = old.dim_size(0);
      const int64_t row_bytes = static_cast<int64_t>(old.TotalBytes()) / num_rows;
      const ScatterBody<Index> body = {static_cast<const char*>(updates.data()), row_bytes,
                                       ids.flat<Index>().data(), num_rows, rows};
      return ForEach(ids.NumElements(), body, nullptr);
    });
  }
};

template <class T>
struct FillBody {
  const T* value;
  T* filled;

  void operator()(int64_t i) const { filled[i] = *value; }
};

template <class T, class Index>
class FillOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* ctx) override {
    tensorflow::TensorShape shape;
    OP_REQUIRES_OK(
        ctx, tensorflow::TensorShapeUtils::MakeShape(ctx->input(0).flat<Index>().data(),
                                                     ctx->input(0).NumElements(), &shape));
    Tensor* filled;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, shape, &filled));
    const FillBody<T> body = {ctx->input(1).flat<T>().data(), filled->flat<T>().data()};
    const Status status = ForEach(filled->NumElements(), body, nullptr);
    OP_REQUIRES(ctx, status == kOk, absl::InternalError(StatusText(status)));
  }
};

#define LARGEOUT_REGISTER_FILL(T, Index)                            \
  REGISTER_KERNEL_BUILDER(Name("Fill")                              \
                              .Device(DEVICE_GPU)                   \
                              .HostMemory("dims")                   \
                              .TypeConstraint<T>("T")               \
                              .TypeConstraint<Index>("index_type"), \
                          FillOp<T, Index>)
LARGEOUT_REGISTER_FILL(float, int32_t);
LARGEOUT_REGISTER_FILL(float, int64_t);
LARGEOUT_REGISTER_FILL(int64_t, int32_t);
LARGEOUT_REGISTER_FILL(int64_t, int64_t);

#define LARGEOUT_REGISTER_GATHER(Index)                           \
  REGISTER_KERNEL_BUILDER(Name("ResourceGather")                  \
                              .Device(DEVICE_GPU)                 \
                              .HostMemory("resource")             \
                              .TypeConstraint<Index>("Tindices"), \
                          ResourceGatherOp<Index>)
LARGEOUT_REGISTER_GATHER(int32_t);
LARGEOUT_REGISTER_GATHER(int64_t);

#define LARGEOUT_REGISTER_SCATTER(Index)                          \
  REGISTER_KERNEL_BUILDER(Name("ResourceScatterUpdate")           \
                              .Device(DEVICE_GPU)                 \
                              .HostMemory("resource")             \
                              .TypeConstraint<Index>("Tindices"), \
                          ResourceScatterUpdateOp<Index>)
LARGEOUT_REGISTER_SCATTER(int32_t);
LARGEOUT_REGISTER_SCATTER(int64_t);

#define LARGEOUT_REGISTER_ASSIGN(name, T, sign)                                        \
  REGISTER_KERNEL_BUILDER(                                                             \
      Name(name).Device(DEVICE_GPU).HostMemory("resource").TypeConstraint<T>("dtype"), \
      AssignAddOp<T, sign>)
LARGEOUT_REGISTER_ASSIGN("AssignAddVariableOp", float, 1);
LARGEOUT_REGISTER_ASSIGN("AssignAddVariableOp", double, 1);
LARGEOUT_REGISTER_ASSIGN("AssignAddVariableOp", int64_t, 1);
LARGEOUT_REGISTER_ASSIGN("AssignSubVariableOp", float, -1);
LARGEOUT_REGISTER_ASSIGN("AssignSubVariableOp", int64_t, -1);

}  // namespace
}  // namespace cuda
}  // namespace largeout
