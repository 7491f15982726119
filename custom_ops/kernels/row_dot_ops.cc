#include "custom_ops/core/row_dots.h"
#include "custom_ops/kernels/intra_op_parallel.h"
#include "custom_ops/kernels/largeout_op.h"
#include "custom_ops/kernels/row_dot_input.h"

namespace largeout {
namespace {

using tensorflow::OpKernelContext;
using tensorflow::OpOutputList;
using tensorflow::Tensor;
using tensorflow::errors::InvalidArgument;

absl::Status CheckIds(const Tensor& ids, int64_t lowest, int64_t num_classes,
                      const char* name) {
  const auto values = ids.flat<int64_t>();
  for (int64_t i = 0; i < values.size(); ++i) {
    if (values(i) < lowest || values(i) >= num_classes) {
      return InvalidArgument(name, " must be class ids in [0, ", num_classes, ")",
                             lowest < 0 ? ", or -1 for no class" : "", ", got ", values(i),
                             " at position ", i);
    }
  }
  return absl::OkStatus();
}

// Reads the inputs, and checks the ids.
absl::Status ReadChecked(OpKernelContext* ctx, RowDotInput* classes) {
  TF_RETURN_IF_ERROR(classes->Read(ctx));
  const Tensor *own_ids, *shared_ids;
  TF_RETURN_IF_ERROR(ctx->input("ids", &own_ids));
  TF_RETURN_IF_ERROR(ctx->input("shared_ids", &shared_ids));
  TF_RETURN_IF_ERROR(CheckIds(*own_ids, -1, classes->matrix.num_classes, "ids"));
  return CheckIds(*shared_ids, 0, classes->matrix.num_classes, "shared_ids");
}

class RowDotsOp : public LargeoutOp {
 public:
  using LargeoutOp::LargeoutOp;

  void Run(OpKernelContext* ctx) override {
    RowDotInput classes;
    OP_REQUIRES_OK(ctx, ReadChecked(ctx, &classes));
    const int64_t num_shared = classes.shared.size;
    Tensor *logits, *rows, *biases = nullptr;
    OP_REQUIRES_OK(ctx,
                   AllocateOutput(ctx, 0, {classes.own.batch, classes.own.per_row}, &logits));
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 1, {num_shared, classes.matrix.dim}, &rows));
    if (classes.matrix.bias != nullptr) {
      OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 2, {num_shared}, &biases));
    }
    const ParallelFor parallel = IntraOpParallel(ctx);
    RowDots(classes.matrix, ctx->input(0).flat<float>().data(), classes.own, parallel,
            logits->flat<float>().data());
    GatherRows(classes.matrix, classes.shared, parallel, rows->flat<float>().data(),
               biases == nullptr ? nullptr : biases->flat<float>().data());
  }
};

class RowDotsGradOp : public LargeoutOp {
 public:
  using LargeoutOp::LargeoutOp;

  void Run(OpKernelContext* ctx) override {
    RowDotInput classes;
    OP_REQUIRES_OK(ctx, ReadChecked(ctx, &classes));
    RowDotsGradients gradients{};
    OP_REQUIRES_OK(ctx, classes.ReadGradients(ctx, &gradients));
    const ClassMatrix& matrix = classes.matrix;
    const ParallelFor parallel = IntraOpParallel(ctx);

    Tensor *d_features, *shape;
    OP_REQUIRES_OK(ctx, ctx->allocate_output("d_features", ctx->input(0).shape(), &d_features));
    RowDotsFeatureGradient(matrix, classes.own, gradients.d_logits, parallel,
                           d_features->flat<float>().data());
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, "embeddings_shape", {2}, &shape));
    shape->flat<int64_t>().setValues({matrix.num_classes, matrix.dim});
    OP_REQUIRES_OK(ctx, WriteRows(ctx, classes, gradients, parallel));
  }

 private:
  static absl::Status WriteRows(OpKernelContext* ctx, const RowDotInput& classes,
                                const RowDotsGradients& gradients,
                                const ParallelFor& parallel) {
    const int64_t dim = classes.matrix.dim;
    const MergedRows merged =
        MergeClasses(classes.own, classes.shared, classes.matrix.num_classes, parallel);
    Tensor *ids, *rows, *biases = nullptr;
    TF_RETURN_IF_ERROR(AllocateOutput(ctx, "row_ids", {merged.size()}, &ids));
    TF_RETURN_IF_ERROR(AllocateOutput(ctx, "d_rows", {merged.size(), dim}, &rows));
    OpOutputList d_biases;
    TF_RETURN_IF_ERROR(ctx->output_list("d_biases", &d_biases));
    if (d_biases.size() > 0) {
      TF_RETURN_IF_ERROR(d_biases.allocate(0, {merged.size()}, &biases));
    }
    std::copy(merged.ids.begin(), merged.ids.end(), ids->flat<int64_t>().data());
    RowDotsRowGradient(merged, gradients, classes.own, dim, parallel,
                       rows->flat<float>().data(),
                       biases == nullptr ? nullptr : biases->flat<float>().data());
    return absl::OkStatus();
  }
};

REGISTER_KERNEL_BUILDER(Name("LargeoutRowDots").Device(tensorflow::DEVICE_CPU), RowDotsOp);
REGISTER_KERNEL_BUILDER(Name("LargeoutRowDotsGrad").Device(tensorflow::DEVICE_CPU),
                        RowDotsGradOp);

}  // namespace
}  // namespace largeout
