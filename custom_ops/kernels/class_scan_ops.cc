// The ops that pass over all classes: statistics, logits of labels, and the gradient. Those
// that find the best classes are in class_top_k.cc.

#include <limits>

#include "custom_ops/core/class_scan/class_scan.h"
#include "custom_ops/kernels/checks.h"
#include "custom_ops/kernels/class_matrix_input.h"
#include "custom_ops/kernels/intra_op_parallel.h"
#include "custom_ops/kernels/largeout_op.h"

namespace largeout {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::errors::InvalidArgument;

Labels LabelsOf(const Tensor& labels) {
  return {labels.flat<int64_t>().data(), labels.dim_size(1)};
}

// The number type that attribute compute_type names.
absl::Status ReadNumbers(OpKernelConstruction* ctx, ProductNumbers* numbers) {
  tensorflow::DataType type;
  TF_RETURN_IF_ERROR(ctx->GetAttr("compute_type", &type));
  if (type == tensorflow::DT_BFLOAT16) *numbers = ProductNumbers::kBfloat16;
  return absl::OkStatus();
}

class ClassStatisticsOp : public LargeoutOp {
 public:
  explicit ClassStatisticsOp(OpKernelConstruction* ctx) : LargeoutOp(ctx) {
    int num_given;
    OP_REQUIRES_OK(ctx, ReadNumbers(ctx, &numbers_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("unit_length", &unit_length_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("num_given", &num_given));
    OP_REQUIRES(ctx, num_given <= 1,
                InvalidArgument("true_logits must be one tensor or none, got ", num_given));
    logits_given_ = num_given == 1;
  }

  void Run(OpKernelContext* ctx) override {
    const Tensor &features = ctx->input(0), *ids;
    ClassMatrixInput input;
    OP_REQUIRES_OK(ctx, input.Read(ctx, features));
    ClassMatrix matrix = input.matrix();
    matrix.unit_length = unit_length_;
    OP_REQUIRES_OK(ctx, ctx->input("labels", &ids));
    const int64_t batch = features.dim_size(0);
    OP_REQUIRES_OK(ctx, CheckBatchMatrix(*ids, "labels", batch, "features"));
    OP_REQUIRES_OK(
        ctx, CheckClassIds(*ids, -1, logits_given_ ? kAnyClass : matrix.num_classes, "labels"));
    Labels labels = LabelsOf(*ids);
    Tensor *log_partition, *ranks;
    float* true_logits = nullptr;
    OP_REQUIRES_OK(ctx, ReadFirstClass(ctx, &labels));
    OP_REQUIRES_OK(ctx, logits_given_ ? TakeLogits(ctx, *ids, &labels)
                                      : AllocateLogits(ctx, *ids, &true_logits));
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 0, {batch}, &log_partition));
    OP_REQUIRES_OK(ctx, ctx->allocate_output(2, ids->shape(), &ranks));
    if (batch == 0) return;
    ClassStatistics(matrix, FeaturesOf(features), labels, IntraOpParallel(ctx),
                    log_partition->flat<float>().data(), true_logits,
                    ranks->flat<int64_t>().data(), numbers_);
  }

 private:
  static constexpr int64_t kAnyClass = std::numeric_limits<int64_t>::max();

  absl::Status ReadFirstClass(OpKernelContext* ctx, Labels* labels) const {
    const Tensor* first_class;
    TF_RETURN_IF_ERROR(ctx->input("first_class", &first_class));
    TF_RETURN_IF_ERROR(CheckScalar(*first_class, "first_class"));
    labels->first_class = first_class->scalar<int64_t>()();
    if (labels->first_class == 0 || (labels->first_class > 0 && logits_given_)) {
      return absl::OkStatus();
    }
    return InvalidArgument(
        "first_class must be at least 0, and 0 unless true_logits are given, got ",
        labels->first_class);
  }

  // Copies the given logits to output true_logits.
  static absl::Status TakeLogits(OpKernelContext* ctx, const Tensor& ids, Labels* labels) {
    tensorflow::OpInputList given;
    TF_RETURN_IF_ERROR(ctx->input_list("given_logits", &given));
    TF_RETURN_IF_ERROR(CheckSameShape(given[0], "true_logits", ids, "labels"));
    labels->logits = given[0].flat<float>().data();
    ctx->set_output(1, given[0]);
    return absl::OkStatus();
  }

  static absl::Status AllocateLogits(OpKernelContext* ctx, const Tensor& ids,
                                     float** true_logits) {
    Tensor* output;
    TF_RETURN_IF_ERROR(ctx->allocate_output(1, ids.shape(), &output));
    *true_logits = output->flat<float>().data();
    return absl::OkStatus();
  }

  ProductNumbers numbers_ = ProductNumbers::kFloat32;
  bool unit_length_ = false;
  bool logits_given_ = false;
};

class LabelLogitsOp : public LargeoutOp {
 public:
  explicit LabelLogitsOp(OpKernelConstruction* ctx) : LargeoutOp(ctx) {
    OP_REQUIRES_OK(ctx, ReadNumbers(ctx, &numbers_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("unit_length", &unit_length_));
  }

  void Run(OpKernelContext* ctx) override {
    const Tensor &features = ctx->input(0), *ids;
    ClassMatrixInput input;
    OP_REQUIRES_OK(ctx, input.Read(ctx, features));
    ClassMatrix matrix = input.matrix();
    matrix.unit_length = unit_length_;
    OP_REQUIRES_OK(ctx, ctx->input("labels", &ids));
    OP_REQUIRES_OK(ctx, CheckBatchMatrix(*ids, "labels", features.dim_size(0), "features"));
    OP_REQUIRES_OK(ctx, CheckClassIds(*ids, -1, matrix.num_classes, "labels"));
    Tensor* true_logits;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, ids->shape(), &true_logits));
    if (ids->NumElements() == 0) return;
    LabelLogits(matrix, FeaturesOf(features), LabelsOf(*ids), IntraOpParallel(ctx),
                true_logits->flat<float>().data(), numbers_);
  }

 private:
  ProductNumbers numbers_ = ProductNumbers::kFloat32;
  bool unit_length_ = false;
};

class ClassSoftmaxGradientOp : public LargeoutOp {
 public:
  explicit ClassSoftmaxGradientOp(OpKernelConstruction* ctx) : LargeoutOp(ctx) {
    OP_REQUIRES_OK(ctx, ReadNumbers(ctx, &numbers_));
  }

  void Run(OpKernelContext* ctx) override {
    const Tensor& features = ctx->input(0);
    const int rest = ctx->num_inputs() - 4;
    const Tensor &log_partition = ctx->input(rest), &weights = ctx->input(rest + 1),
                 &labels = ctx->input(rest + 2), &label_weights = ctx->input(rest + 3);
    const int64_t batch = features.dim_size(0);
    ClassMatrixInput input;
    OP_REQUIRES_OK(ctx, input.Read(ctx, features));
    const ClassMatrix matrix = input.matrix();
    OP_REQUIRES_OK(ctx, CheckBatchVector(log_partition, "log_partition", batch, "features"));
    OP_REQUIRES_OK(ctx, CheckBatchVector(weights, "weights", batch, "features"));
    OP_REQUIRES_OK(ctx, CheckBatchMatrix(labels, "labels", batch, "features"));
    OP_REQUIRES_OK(ctx, CheckClassIds(labels, -1, matrix.num_classes, "labels"));
    OP_REQUIRES_OK(ctx, CheckSameShape(label_weights, "label_weights", labels, "labels"));
    Tensor *d_features, *d_embeddings, *d_bias = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, features.shape(), &d_features));
    OP_REQUIRES_OK(ctx,
                   AllocateOutput(ctx, 1, {matrix.num_classes, matrix.dim}, &d_embeddings));
    if (matrix.bias != nullptr) {
      OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 2, {matrix.num_classes}, &d_bias));
    }
    ClassSoftmaxGradient(matrix, FeaturesOf(features), log_partition.flat<float>().data(),
                         weights.flat<float>().data(), LabelsOf(labels),
                         label_weights.flat<float>().data(), IntraOpParallel(ctx),
                         d_features->flat<float>().data(), d_embeddings->flat<float>().data(),
                         d_bias == nullptr ? nullptr : d_bias->flat<float>().data(), numbers_);
  }

 private:
  ProductNumbers numbers_ = ProductNumbers::kFloat32;
};

REGISTER_KERNEL_BUILDER(Name("LargeoutClassStatistics").Device(tensorflow::DEVICE_CPU),
                        ClassStatisticsOp);
REGISTER_KERNEL_BUILDER(Name("LargeoutLabelLogits").Device(tensorflow::DEVICE_CPU),
                        LabelLogitsOp);
REGISTER_KERNEL_BUILDER(Name("LargeoutClassSoftmaxGradient").Device(tensorflow::DEVICE_CPU),
                        ClassSoftmaxGradientOp);

}  // namespace
}  // namespace largeout
