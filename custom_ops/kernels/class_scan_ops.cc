#include "custom_ops/kernels/class_scan_ops.h"

#include <algorithm>
#include <limits>

#include "custom_ops/core/class_scan/class_scan.h"
#include "custom_ops/core/class_scan/lost_logits.h"
#include "custom_ops/kernels/intra_op_parallel.h"

namespace largeout {
namespace {

using tensorflow::OpKernelContext;

using tensorflow::errors::InvalidArgument;

// Logits of features that are not finite have no order.
absl::Status CheckFinite(const Features& features, int64_t dim) {
  for (int64_t example = 0; example < features.batch; ++example) {
    const float* numbers = features.data + example * dim;
    if (AllFinite(numbers, dim)) continue;
    return InvalidArgument(
        "features must be finite, but those of example ", example, " are not: one is ",
        *std::find_if_not(numbers, numbers + dim, [](float x) { return IsFinite(x); }),
        ". Check the input of the layer");
  }
  return absl::OkStatus();
}

// is_lost(scored): whether the logit of a class is not finite although its numbers are.
template <class Lost>
absl::Status CheckNoneLost(int64_t batch, int64_t k, const float* scores, const int64_t* ids,
                           const Lost& is_lost) {
  for (int64_t i = 0; i < batch * k; ++i) {
    if (!is_lost(ScoredClass{scores[i], static_cast<int32_t>(ids[i])})) continue;
    return InvalidArgument("logits must not overflow, but for the features of example ", i / k,
                           " that of class ", ids[i], " is ", scores[i],
                           ", though all numbers are finite: scale the features down");
  }
  return absl::OkStatus();
}

struct CpuClassScan {
  static absl::Status CheckIds(const tensorflow::Tensor& labels, int64_t num_classes) {
    return CheckClassIds(labels, -1, num_classes, "labels");
  }

  static absl::Status CheckTopK(int64_t) { return absl::OkStatus(); }

  static absl::Status CheckNumbers(ProductNumbers) { return absl::OkStatus(); }

  static absl::Status CheckUnitLength() { return absl::OkStatus(); }

  static absl::Status ClassStatistics(OpKernelContext* ctx, const ClassMatrix& matrix,
                                      const Features& features, const Labels& labels,
                                      float* log_partition, float* true_logits, int64_t* ranks,
                                      ProductNumbers numbers) {
    largeout::ClassStatistics(matrix, features, labels, IntraOpParallel(ctx), log_partition,
                              true_logits, ranks, numbers);
    return absl::OkStatus();
  }

  static absl::Status LabelLogits(OpKernelContext* ctx, const ClassMatrix& matrix,
                                  const Features& features, const Labels& labels,
                                  float* true_logits, ProductNumbers numbers) {
    largeout::LabelLogits(matrix, features, labels, IntraOpParallel(ctx), true_logits, numbers);
    return absl::OkStatus();
  }

  static absl::Status ClassTopK(OpKernelContext* ctx, const ClassMatrix& matrix,
                                const Features& features, int64_t k, const PackedRows* packed,
                                float* scores, int64_t* ids) {
    TF_RETURN_IF_ERROR(CheckFinite(features, matrix.dim));
    largeout::ClassTopK(matrix, features, k, IntraOpParallel(ctx), scores, ids, packed);
    return CheckNoneLost(features.batch, k, scores, ids,
                         [&](const ScoredClass& scored) { return IsLost(matrix, scored); });
  }

  static absl::Status ClassSoftmaxGradient(OpKernelContext* ctx, const ClassMatrix& matrix,
                                           const Features& features, const float* log_partition,
                                           const float* weights, const Labels& labels,
                                           const float* label_weights, float* d_features,
                                           float* d_embeddings, float* d_bias,
                                           ProductNumbers numbers) {
    largeout::ClassSoftmaxGradient(matrix, features, log_partition, weights, labels,
                                   label_weights, IntraOpParallel(ctx), d_features,
                                   d_embeddings, d_bias, numbers);
    return absl::OkStatus();
  }
};

class PackClassesOp : public LargeoutOp {
 public:
  using LargeoutOp::LargeoutOp;

  void Run(OpKernelContext* ctx) override {
    ClassMatrixInput input;
    OP_REQUIRES_OK(ctx, input.Read(ctx));
    const ClassMatrix matrix = input.matrix();
    const PackedSizes sizes = SizesOfPacked(matrix.num_classes, matrix.dim);
    tensorflow::Tensor *codes, *scales;
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 0, {sizes.codes}, &codes));
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 1, {sizes.scales}, &scales));
    PackAllRows(matrix, nullptr, IntraOpParallel(ctx),
                PackedRowsIn(*codes, *scales, matrix.num_classes, matrix.dim));
  }
};

class PackedTopKOp : public LargeoutOp {
 public:
  explicit PackedTopKOp(tensorflow::OpKernelConstruction* ctx) : LargeoutOp(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("num_classes", &num_classes_));
    OP_REQUIRES(ctx, num_classes_ < std::numeric_limits<int32_t>::max(),
                InvalidArgument("num_classes must be at most 2^31 - 2, got ", num_classes_));
  }

  void Run(OpKernelContext* ctx) override {
    const tensorflow::Tensor &features = ctx->input(0), &codes = ctx->input(1),
                             &scales = ctx->input(2);
    OP_REQUIRES(
        ctx, features.dims() == 2,
        InvalidArgument("features must be [batch, dim], got ", features.shape().DebugString()));
    const int64_t batch = features.dim_size(0), dim = features.dim_size(1);
    int64_t k = 0;
    OP_REQUIRES_OK(ctx, ReadTopK(ctx, num_classes_, &k));
    OP_REQUIRES_OK(ctx, CheckPacked(codes, scales, num_classes_, dim));
    tensorflow::Tensor *scores, *ids;
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 0, {batch, k}, &scores));
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 1, {batch, k}, &ids));
    if (batch == 0) return;
    OP_REQUIRES_OK(ctx, CheckFinite(FeaturesOf(features), dim));
    const PackedRows packed = PackedRowsIn(codes, scales, num_classes_, dim);
    float* const best = scores->flat<float>().data();
    int64_t* const best_ids = ids->flat<int64_t>().data();
    ClassTopK({nullptr, nullptr, num_classes_, dim}, FeaturesOf(features), k,
              IntraOpParallel(ctx), best, best_ids, &packed);
    const auto is_lost = [&](const ScoredClass& scored) {
      return !IsFinite(scored.score) && IsFinite(BiasOfRow(packed, scored.id));
    };
    OP_REQUIRES_OK(ctx, CheckNoneLost(batch, k, best, best_ids, is_lost));
  }

 private:
  int64_t num_classes_ = 0;
};

LARGEOUT_REGISTER_CLASS_SCAN_OPS(tensorflow::DEVICE_CPU, CpuClassScan);
REGISTER_KERNEL_BUILDER(Name("LargeoutPackedTopK").Device(tensorflow::DEVICE_CPU),
                        PackedTopKOp);
REGISTER_KERNEL_BUILDER(Name("LargeoutPackClasses").Device(tensorflow::DEVICE_CPU),
                        PackClassesOp);

}  // namespace
}  // namespace largeout
