// The ops on sums of rows of bags. A sum of rows is computed like the gradient of the features
// in core/rows/row_dots.h, and the gradient of a row of the table like that of the row of a
// class.

#include <algorithm>
#include <limits>

#include "custom_ops/core/rows/row_dots.h"
#include "custom_ops/kernels/class_matrix_input.h"
#include "custom_ops/kernels/intra_op_parallel.h"
#include "custom_ops/kernels/largeout_op.h"

namespace largeout {
namespace {

using tensorflow::OpKernelContext;
using tensorflow::Tensor;

// The table and the bags of an op. Holds the lock during its lifetime.
class BagInput {
 public:
  absl::Status Read(OpKernelContext* ctx) {
    const Tensor &ids = ctx->input(1), &weights = ctx->input(2);
    TF_RETURN_IF_ERROR(table_input_.ReadTable(ctx));
    if (ids.dims() != 2) return WrongShape(ids, "ids", "[batch, num_ids]");
    TF_RETURN_IF_ERROR(CheckSameShape(weights, "weights", ids, "ids"));
    if (ids.NumElements() > std::numeric_limits<int32_t>::max()) {
      return WrongShape(ids, "ids", "fewer than 2^31");
    }
    table = table_input_.matrix();
    bags = {ids.flat<int64_t>().data(), ids.dim_size(0), ids.dim_size(1)};
    this->weights = weights.flat<float>().data();
    return CheckClassIds(ids, -1, table.num_classes, "ids");
  }

  ClassMatrix table;
  OwnClasses bags;
  const float* weights = nullptr;

 private:
  ClassMatrixInput table_input_;
};

class BagSumsOp : public LargeoutOp {
 public:
  using LargeoutOp::LargeoutOp;

  void Run(OpKernelContext* ctx) override {
    BagInput in;
    OP_REQUIRES_OK(ctx, in.Read(ctx));
    Tensor* sums = nullptr;
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 0, {in.bags.batch, in.table.dim}, &sums));
    RowDotsFeatureGradient(in.table, in.bags, in.weights, IntraOpParallel(ctx),
                           sums->flat<float>().data());
  }
};

// The gradients of the distinct rows.
class BagSumsGradOp : public LargeoutOp {
 public:
  using LargeoutOp::LargeoutOp;

  void Run(OpKernelContext* ctx) override {
    BagInput in;
    OP_REQUIRES_OK(ctx, in.Read(ctx));
    const int64_t dim = in.table.dim;
    const Tensor& d_sums = ctx->input(3);
    OP_REQUIRES_OK(ctx,
                   CheckShape(d_sums, "d_sums", tensorflow::TensorShape({in.bags.batch, dim})));
    const ParallelFor parallel = IntraOpParallel(ctx);
    const MergedRows merged = MergeClasses(in.bags, SharedClasses{}, parallel);
    Tensor *shape, *ids, *rows;
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, "embeddings_shape", {2}, &shape));
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, "row_ids", {merged.size()}, &ids));
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, "d_rows", {merged.size(), dim}, &rows));
    shape->flat<int64_t>()(0) = in.table.num_classes;
    shape->flat<int64_t>()(1) = dim;
    std::copy(merged.ids.begin(), merged.ids.end(), ids->flat<int64_t>().data());
    RowDotsRowGradient(merged, {d_sums.flat<float>().data(), in.weights, nullptr, nullptr},
                       in.bags, dim, parallel, rows->flat<float>().data(), nullptr);
  }
};

REGISTER_KERNEL_BUILDER(Name("LargeoutBagSums").Device(tensorflow::DEVICE_CPU), BagSumsOp);
REGISTER_KERNEL_BUILDER(Name("LargeoutBagSumsGrad").Device(tensorflow::DEVICE_CPU),
                        BagSumsGradOp);

}  // namespace
}  // namespace largeout
