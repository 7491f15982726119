// The ops of custom_ops/ops/class_scan_ops.cc that find the classes with the highest logits,
// and that pack classes for them.

#include <algorithm>
#include <limits>
#include <optional>

#include "custom_ops/core/class_scan/class_scan.h"
#include "custom_ops/core/class_scan/lost_logits.h"
#include "custom_ops/core/class_scan/packed_rows.h"
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

// The outputs of LargeoutPackClasses in the form of core, which only reads them in a scan.
PackedRows PackedRowsIn(const Tensor& codes, const Tensor& scales, int64_t num_classes,
                        int64_t dim) {
  float* numbers = const_cast<float*>(scales.flat<float>().data());
  return {const_cast<uint8_t*>(codes.flat<uint8_t>().data()), numbers, num_classes,
          PackedWidth(dim), numbers + NumScales(num_classes)};
}

// Input k, a scalar in [1, num_classes].
absl::Status ReadTopK(OpKernelContext* ctx, int64_t num_classes, int64_t* k) {
  const Tensor* input;
  TF_RETURN_IF_ERROR(ctx->input("k", &input));
  TF_RETURN_IF_ERROR(CheckScalar(*input, "k"));
  *k = input->scalar<int64_t>()();
  if (1 <= *k && *k <= num_classes) return absl::OkStatus();
  return InvalidArgument("k must be in [1, ", num_classes, "], the number of classes, got ",
                         *k);
}

// Whether they have the shapes of the outputs of LargeoutPackClasses for [num_classes, dim].
absl::Status CheckPacked(const Tensor& codes, const Tensor& scales, int64_t num_classes,
                         int64_t dim) {
  const PackedSizes sizes = SizesOfPacked(num_classes, dim);
  TF_RETURN_IF_ERROR(CheckShape(codes, "packed_codes", {sizes.codes}));
  return CheckShape(scales, "packed_scales", {sizes.scales});
}

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

class ClassTopKOp : public LargeoutOp {
 public:
  explicit ClassTopKOp(OpKernelConstruction* ctx) : LargeoutOp(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("unit_length", &unit_length_));
  }

  void Run(OpKernelContext* ctx) override {
    const Tensor& features = ctx->input(0);
    const int64_t batch = features.dim_size(0);
    ClassMatrixInput input;
    OP_REQUIRES_OK(ctx, input.Read(ctx, features));
    ClassMatrix matrix = input.matrix();
    matrix.unit_length = unit_length_;
    int64_t k = 0;
    OP_REQUIRES_OK(ctx, ReadTopK(ctx, matrix.num_classes, &k));
    std::optional<PackedRows> packed;
    OP_REQUIRES_OK(ctx, ReadPacked(ctx, matrix, &packed));
    Tensor *scores, *ids;
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 0, {batch, k}, &scores));
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 1, {batch, k}, &ids));
    if (batch == 0) return;
    OP_REQUIRES_OK(ctx, CheckFinite(FeaturesOf(features), matrix.dim));
    float* const best = scores->flat<float>().data();
    int64_t* const best_ids = ids->flat<int64_t>().data();
    ClassTopK(matrix, FeaturesOf(features), k, IntraOpParallel(ctx), best, best_ids,
              packed ? &*packed : nullptr);
    const auto is_lost = [&](const ScoredClass& scored) { return IsLost(matrix, scored); };
    OP_REQUIRES_OK(ctx, CheckNoneLost(batch, k, best, best_ids, is_lost));
  }

 private:
  static absl::Status ReadPacked(OpKernelContext* ctx, const ClassMatrix& matrix,
                                 std::optional<PackedRows>* packed) {
    tensorflow::OpInputList codes, scales;
    TF_RETURN_IF_ERROR(ctx->input_list("packed_codes", &codes));
    TF_RETURN_IF_ERROR(ctx->input_list("packed_scales", &scales));
    if (codes.size() == 0) return absl::OkStatus();
    if (codes.size() > 1 || matrix.unit_length) {
      return InvalidArgument("num_packed must be 0, or 1 without unit_length, got ",
                             codes.size());
    }
    TF_RETURN_IF_ERROR(CheckPacked(codes[0], scales[0], matrix.num_classes, matrix.dim));
    *packed = PackedRowsIn(codes[0], scales[0], matrix.num_classes, matrix.dim);
    return absl::OkStatus();
  }

  bool unit_length_ = false;
};

class PackClassesOp : public LargeoutOp {
 public:
  using LargeoutOp::LargeoutOp;

  void Run(OpKernelContext* ctx) override {
    ClassMatrixInput input;
    OP_REQUIRES_OK(ctx, input.Read(ctx));
    const ClassMatrix matrix = input.matrix();
    const PackedSizes sizes = SizesOfPacked(matrix.num_classes, matrix.dim);
    Tensor *codes, *scales;
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 0, {sizes.codes}, &codes));
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 1, {sizes.scales}, &scales));
    PackAllRows(matrix, nullptr, IntraOpParallel(ctx),
                PackedRowsIn(*codes, *scales, matrix.num_classes, matrix.dim));
  }
};

class PackedTopKOp : public LargeoutOp {
 public:
  explicit PackedTopKOp(OpKernelConstruction* ctx) : LargeoutOp(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("num_classes", &num_classes_));
    OP_REQUIRES(ctx, num_classes_ < std::numeric_limits<int32_t>::max(),
                InvalidArgument("num_classes must be at most 2^31 - 2, got ", num_classes_));
  }

  void Run(OpKernelContext* ctx) override {
    const Tensor &features = ctx->input(0), &codes = ctx->input(1), &scales = ctx->input(2);
    OP_REQUIRES(
        ctx, features.dims() == 2,
        InvalidArgument("features must be [batch, dim], got ", features.shape().DebugString()));
    const int64_t batch = features.dim_size(0), dim = features.dim_size(1);
    int64_t k = 0;
    OP_REQUIRES_OK(ctx, ReadTopK(ctx, num_classes_, &k));
    OP_REQUIRES_OK(ctx, CheckPacked(codes, scales, num_classes_, dim));
    Tensor *scores, *ids;
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

REGISTER_KERNEL_BUILDER(Name("LargeoutClassTopK").Device(tensorflow::DEVICE_CPU), ClassTopKOp);
REGISTER_KERNEL_BUILDER(Name("LargeoutPackedTopK").Device(tensorflow::DEVICE_CPU),
                        PackedTopKOp);
REGISTER_KERNEL_BUILDER(Name("LargeoutPackClasses").Device(tensorflow::DEVICE_CPU),
                        PackClassesOp);

}  // namespace
}  // namespace largeout
