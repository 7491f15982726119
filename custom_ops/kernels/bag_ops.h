// The ops on sums of rows of bags, for every device.
//
// A sum of rows is computed like the gradient of the features in core/rows/row_dots.h, and the
// gradient of a row of the table like the gradient of the row of a class there. A Device has
// these static functions, which return a status: CheckIds(in), Sums(ctx, in, sums) and
// RowGradient(ctx, in, d_sums), which allocates its outputs by AllocateBagGradient.

#ifndef LARGEOUT_CUSTOM_OPS_KERNELS_BAG_OPS_H_
#define LARGEOUT_CUSTOM_OPS_KERNELS_BAG_OPS_H_

#include <limits>

#include "custom_ops/core/rows/row_dots.h"
#include "custom_ops/kernels/class_matrix_input.h"
#include "custom_ops/kernels/largeout_op.h"

namespace largeout {

// The table and the bags of an op. Holds the lock during its lifetime.
class BagInput {
 public:
  // Reads the inputs and checks their shapes, but not the ids.
  absl::Status Read(tensorflow::OpKernelContext* ctx) {
    const tensorflow::Tensor &ids = ctx->input(1), &weights = ctx->input(2);
    TF_RETURN_IF_ERROR(table_input_.ReadTable(ctx));
    if (ids.dims() != 2) return WrongShape(ids, "ids", "[batch, num_ids]");
    TF_RETURN_IF_ERROR(CheckSameShape(weights, "weights", ids, "ids"));
    if (ids.NumElements() > std::numeric_limits<int32_t>::max()) {
      return WrongShape(ids, "ids", "fewer than 2^31");
    }
    table = table_input_.matrix();
    bags = {ids.flat<int64_t>().data(), ids.dim_size(0), ids.dim_size(1)};
    this->weights = weights.flat<float>().data();
    return absl::OkStatus();
  }

  ClassMatrix table;
  OwnClasses bags;
  const float* weights = nullptr;

 private:
  ClassMatrixInput table_input_;
};

template <class Device>
class BagSumsOp : public LargeoutOp {
 public:
  using LargeoutOp::LargeoutOp;

  void Run(tensorflow::OpKernelContext* ctx) override {
    BagInput in;
    OP_REQUIRES_OK(ctx, in.Read(ctx));
    OP_REQUIRES_OK(ctx, Device::CheckIds(in));
    tensorflow::Tensor* sums = nullptr;
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 0, {in.bags.batch, in.table.dim}, &sums));
    OP_REQUIRES_OK(ctx, Device::Sums(ctx, in, sums->flat<float>().data()));
  }
};

struct BagGradient {
  int64_t* ids;
  float* rows;
};

inline absl::Status AllocateBagGradient(tensorflow::OpKernelContext* ctx, int64_t num_rows,
                                        int64_t dim, BagGradient* gradient) {
  tensorflow::Tensor *ids, *rows;
  TF_RETURN_IF_ERROR(AllocateOutput(ctx, "row_ids", {num_rows}, &ids));
  TF_RETURN_IF_ERROR(AllocateOutput(ctx, "d_rows", {num_rows, dim}, &rows));
  *gradient = {ids->flat<int64_t>().data(), rows->flat<float>().data()};
  return absl::OkStatus();
}

template <class Device>
class BagSumsGradOp : public LargeoutOp {
 public:
  using LargeoutOp::LargeoutOp;

  void Run(tensorflow::OpKernelContext* ctx) override {
    BagInput in;
    OP_REQUIRES_OK(ctx, in.Read(ctx));
    OP_REQUIRES_OK(ctx, Device::CheckIds(in));
    const tensorflow::Tensor& d_sums = ctx->input(3);
    OP_REQUIRES_OK(ctx, CheckShape(d_sums, "d_sums",
                                   tensorflow::TensorShape({in.bags.batch, in.table.dim})));
    tensorflow::Tensor* shape = nullptr;
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, "embeddings_shape", {2}, &shape));
    shape->flat<int64_t>()(0) = in.table.num_classes;
    shape->flat<int64_t>()(1) = in.table.dim;
    OP_REQUIRES_OK(ctx, Device::RowGradient(ctx, in, d_sums.flat<float>().data()));
  }
};

// Registers the ops with a Device for the TensorFlow device `name`. Handles and shapes are in
// host memory.
#define LARGEOUT_REGISTER_BAG_OPS(name, Functions)                                       \
  REGISTER_KERNEL_BUILDER(Name("LargeoutBagSums").Device(name).HostMemory("embeddings"), \
                          BagSumsOp<Functions>);                                         \
  REGISTER_KERNEL_BUILDER(Name("LargeoutBagSumsGrad")                                    \
                              .Device(name)                                              \
                              .HostMemory("embeddings")                                  \
                              .HostMemory("embeddings_shape"),                           \
                          BagSumsGradOp<Functions>)

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_KERNELS_BAG_OPS_H_
