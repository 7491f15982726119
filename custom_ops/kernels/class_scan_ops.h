// The ops that pass over all classes, for every device.
//
// A Device has the functions of core/class_scan/class_scan.h as static functions that take the
// context first and return a status. It also has CheckIds (for labels whose shape is checked),
// CheckTopK, CheckNumbers and CheckUnitLength, which check what the device can read, hold,
// multiply and scale.

#ifndef LARGEOUT_CUSTOM_OPS_KERNELS_CLASS_SCAN_OPS_H_
#define LARGEOUT_CUSTOM_OPS_KERNELS_CLASS_SCAN_OPS_H_

#include <limits>
#include <optional>

#include "custom_ops/core/class_scan/class_scan_types.h"
#include "custom_ops/core/class_scan/packed_rows.h"
#include "custom_ops/kernels/checks.h"
#include "custom_ops/kernels/class_matrix_input.h"
#include "custom_ops/kernels/largeout_op.h"

namespace largeout {

inline Features FeaturesOf(const tensorflow::Tensor& features) {
  return {features.flat<float>().data(), features.dim_size(0)};
}

inline Labels LabelsOf(const tensorflow::Tensor& labels) {
  return {labels.flat<int64_t>().data(), labels.dim_size(1)};
}

// The outputs of LargeoutPackClasses in the form of core, which only reads them in a scan.
inline PackedRows PackedRowsIn(const tensorflow::Tensor& codes,
                               const tensorflow::Tensor& scales, int64_t num_classes,
                               int64_t dim) {
  float* numbers = const_cast<float*>(scales.flat<float>().data());
  return {const_cast<uint8_t*>(codes.flat<uint8_t>().data()), numbers, num_classes,
          PackedWidth(dim), numbers + NumScales(num_classes)};
}

// The number type that attribute compute_type names.
template <class Device>
absl::Status ReadNumbers(tensorflow::OpKernelConstruction* ctx, ProductNumbers* numbers) {
  tensorflow::DataType type;
  TF_RETURN_IF_ERROR(ctx->GetAttr("compute_type", &type));
  if (type == tensorflow::DT_BFLOAT16) *numbers = ProductNumbers::kBfloat16;
  return Device::CheckNumbers(*numbers);
}

// Attribute unit_length.
template <class Device>
absl::Status ReadUnitLength(tensorflow::OpKernelConstruction* ctx, bool* unit_length) {
  TF_RETURN_IF_ERROR(ctx->GetAttr("unit_length", unit_length));
  return *unit_length ? Device::CheckUnitLength() : absl::OkStatus();
}

template <class Device>
class ClassStatisticsOp : public LargeoutOp {
 public:
  explicit ClassStatisticsOp(tensorflow::OpKernelConstruction* ctx) : LargeoutOp(ctx) {
    int num_given;
    OP_REQUIRES_OK(ctx, ReadNumbers<Device>(ctx, &numbers_));
    OP_REQUIRES_OK(ctx, ReadUnitLength<Device>(ctx, &unit_length_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("num_given", &num_given));
    OP_REQUIRES(ctx, num_given <= 1,
                tensorflow::errors::InvalidArgument(
                    "true_logits must be one tensor or none, got ", num_given));
    logits_given_ = num_given == 1;
  }

  void Run(tensorflow::OpKernelContext* ctx) override {
    const tensorflow::Tensor &features = ctx->input(0), *ids;
    ClassMatrixInput input;
    OP_REQUIRES_OK(ctx, input.Read(ctx, features));
    ClassMatrix matrix = input.matrix();
    matrix.unit_length = unit_length_;
    OP_REQUIRES_OK(ctx, ctx->input("labels", &ids));
    const int64_t batch = features.dim_size(0);
    OP_REQUIRES_OK(ctx, CheckBatchMatrix(*ids, "labels", batch, "features"));
    OP_REQUIRES_OK(ctx, Device::CheckIds(*ids, logits_given_ ? kAnyClass : matrix.num_classes));
    Labels labels = LabelsOf(*ids);
    tensorflow::Tensor *log_partition, *ranks;
    float* true_logits = nullptr;
    OP_REQUIRES_OK(ctx, ReadFirstClass(ctx, &labels));
    OP_REQUIRES_OK(ctx, logits_given_ ? TakeLogits(ctx, *ids, &labels)
                                      : AllocateLogits(ctx, *ids, &true_logits));
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 0, {batch}, &log_partition));
    OP_REQUIRES_OK(ctx, ctx->allocate_output(2, ids->shape(), &ranks));
    if (batch == 0) return;
    OP_REQUIRES_OK(ctx,
                   Device::ClassStatistics(ctx, matrix, FeaturesOf(features), labels,
                                           log_partition->flat<float>().data(), true_logits,
                                           ranks->flat<int64_t>().data(), numbers_));
  }

 private:
  static constexpr int64_t kAnyClass = std::numeric_limits<int64_t>::max();

  absl::Status ReadFirstClass(tensorflow::OpKernelContext* ctx, Labels* labels) const {
    const tensorflow::Tensor* first_class;
    TF_RETURN_IF_ERROR(ctx->input("first_class", &first_class));
    TF_RETURN_IF_ERROR(CheckScalar(*first_class, "first_class"));
    labels->first_class = first_class->scalar<int64_t>()();
    if (labels->first_class == 0 || (labels->first_class > 0 && logits_given_)) {
      return absl::OkStatus();
    }
    return tensorflow::errors::InvalidArgument(
        "first_class must be at least 0, and 0 unless true_logits are given, got ",
        labels->first_class);
  }

  // Copies the given logits to output true_logits.
  static absl::Status TakeLogits(tensorflow::OpKernelContext* ctx,
                                 const tensorflow::Tensor& ids, Labels* labels) {
    tensorflow::OpInputList given;
    TF_RETURN_IF_ERROR(ctx->input_list("given_logits", &given));
    TF_RETURN_IF_ERROR(CheckSameShape(given[0], "true_logits", ids, "labels"));
    labels->logits = given[0].flat<float>().data();
    ctx->set_output(1, given[0]);
    return absl::OkStatus();
  }

  static absl::Status AllocateLogits(tensorflow::OpKernelContext* ctx,
                                     const tensorflow::Tensor& ids, float** true_logits) {
    tensorflow::Tensor* output;
    TF_RETURN_IF_ERROR(ctx->allocate_output(1, ids.shape(), &output));
    *true_logits = output->flat<float>().data();
    return absl::OkStatus();
  }

  ProductNumbers numbers_ = ProductNumbers::kFloat32;
  bool unit_length_ = false;
  bool logits_given_ = false;
};

template <class Device>
class LabelLogitsOp : public LargeoutOp {
 public:
  explicit LabelLogitsOp(tensorflow::OpKernelConstruction* ctx) : LargeoutOp(ctx) {
    OP_REQUIRES_OK(ctx, ReadNumbers<Device>(ctx, &numbers_));
    OP_REQUIRES_OK(ctx, ReadUnitLength<Device>(ctx, &unit_length_));
  }

  void Run(tensorflow::OpKernelContext* ctx) override {
    const tensorflow::Tensor &features = ctx->input(0), *ids;
    ClassMatrixInput input;
    OP_REQUIRES_OK(ctx, input.Read(ctx, features));
    ClassMatrix matrix = input.matrix();
    matrix.unit_length = unit_length_;
    OP_REQUIRES_OK(ctx, ctx->input("labels", &ids));
    OP_REQUIRES_OK(ctx, CheckBatchMatrix(*ids, "labels", features.dim_size(0), "features"));
    OP_REQUIRES_OK(ctx, Device::CheckIds(*ids, matrix.num_classes));
    tensorflow::Tensor* true_logits;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, ids->shape(), &true_logits));
    if (ids->NumElements() == 0) return;
    OP_REQUIRES_OK(ctx, Device::LabelLogits(ctx, matrix, FeaturesOf(features), LabelsOf(*ids),
                                            true_logits->flat<float>().data(), numbers_));
  }

 private:
  ProductNumbers numbers_ = ProductNumbers::kFloat32;
  bool unit_length_ = false;
};

// Input k, a scalar in [1, num_classes].
inline absl::Status ReadTopK(tensorflow::OpKernelContext* ctx, int64_t num_classes,
                             int64_t* k) {
  const tensorflow::Tensor* input;
  TF_RETURN_IF_ERROR(ctx->input("k", &input));
  TF_RETURN_IF_ERROR(CheckScalar(*input, "k"));
  *k = input->scalar<int64_t>()();
  if (1 <= *k && *k <= num_classes) return absl::OkStatus();
  return tensorflow::errors::InvalidArgument("k must be in [1, ", num_classes,
                                             "], the number of classes, got ", *k);
}

// Whether they have the shapes of the outputs of LargeoutPackClasses for [num_classes, dim].
inline absl::Status CheckPacked(const tensorflow::Tensor& codes,
                                const tensorflow::Tensor& scales, int64_t num_classes,
                                int64_t dim) {
  const PackedSizes sizes = SizesOfPacked(num_classes, dim);
  TF_RETURN_IF_ERROR(CheckShape(codes, "packed_codes", {sizes.codes}));
  return CheckShape(scales, "packed_scales", {sizes.scales});
}

template <class Device>
class ClassTopKOp : public LargeoutOp {
 public:
  explicit ClassTopKOp(tensorflow::OpKernelConstruction* ctx) : LargeoutOp(ctx) {
    OP_REQUIRES_OK(ctx, ReadUnitLength<Device>(ctx, &unit_length_));
  }

  void Run(tensorflow::OpKernelContext* ctx) override {
    const tensorflow::Tensor& features = ctx->input(0);
    const int64_t batch = features.dim_size(0);
    ClassMatrixInput input;
    OP_REQUIRES_OK(ctx, input.Read(ctx, features));
    ClassMatrix matrix = input.matrix();
    matrix.unit_length = unit_length_;
    int64_t k = 0;
    OP_REQUIRES_OK(ctx, ReadTopK(ctx, matrix.num_classes, &k));
    OP_REQUIRES_OK(ctx, Device::CheckTopK(k));
    std::optional<PackedRows> packed;
    OP_REQUIRES_OK(ctx, ReadPacked(ctx, matrix, &packed));
    tensorflow::Tensor *scores, *ids;
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 0, {batch, k}, &scores));
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 1, {batch, k}, &ids));
    if (batch == 0) return;
    OP_REQUIRES_OK(ctx, Device::ClassTopK(
                            ctx, matrix, FeaturesOf(features), k, packed ? &*packed : nullptr,
                            scores->flat<float>().data(), ids->flat<int64_t>().data()));
  }

 private:
  static absl::Status ReadPacked(tensorflow::OpKernelContext* ctx, const ClassMatrix& matrix,
                                 std::optional<PackedRows>* packed) {
    tensorflow::OpInputList codes, scales;
    TF_RETURN_IF_ERROR(ctx->input_list("packed_codes", &codes));
    TF_RETURN_IF_ERROR(ctx->input_list("packed_scales", &scales));
    if (codes.size() == 0) return absl::OkStatus();
    if (codes.size() > 1 || matrix.unit_length) {
      return tensorflow::errors::InvalidArgument(
          "num_packed must be 0, or 1 without unit_length, got ", codes.size());
    }
    TF_RETURN_IF_ERROR(CheckPacked(codes[0], scales[0], matrix.num_classes, matrix.dim));
    *packed = PackedRowsIn(codes[0], scales[0], matrix.num_classes, matrix.dim);
    return absl::OkStatus();
  }

  bool unit_length_ = false;
};

template <class Device>
class ClassSoftmaxGradientOp : public LargeoutOp {
 public:
  explicit ClassSoftmaxGradientOp(tensorflow::OpKernelConstruction* ctx) : LargeoutOp(ctx) {
    OP_REQUIRES_OK(ctx, ReadNumbers<Device>(ctx, &numbers_));
  }

  void Run(tensorflow::OpKernelContext* ctx) override {
    const tensorflow::Tensor& features = ctx->input(0);
    const int rest = ctx->num_inputs() - 4;
    const tensorflow::Tensor &log_partition = ctx->input(rest), &weights = ctx->input(rest + 1),
                             &labels = ctx->input(rest + 2),
                             &label_weights = ctx->input(rest + 3);
    const int64_t batch = features.dim_size(0);
    ClassMatrixInput input;
    OP_REQUIRES_OK(ctx, input.Read(ctx, features));
    const ClassMatrix matrix = input.matrix();
    OP_REQUIRES_OK(ctx, CheckBatchVector(log_partition, "log_partition", batch, "features"));
    OP_REQUIRES_OK(ctx, CheckBatchVector(weights, "weights", batch, "features"));
    OP_REQUIRES_OK(ctx, CheckBatchMatrix(labels, "labels", batch, "features"));
    OP_REQUIRES_OK(ctx, Device::CheckIds(labels, matrix.num_classes));
    OP_REQUIRES_OK(ctx, CheckSameShape(label_weights, "label_weights", labels, "labels"));
    tensorflow::Tensor *d_features, *d_embeddings, *d_bias = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, features.shape(), &d_features));
    OP_REQUIRES_OK(ctx,
                   AllocateOutput(ctx, 1, {matrix.num_classes, matrix.dim}, &d_embeddings));
    if (matrix.bias != nullptr) {
      OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 2, {matrix.num_classes}, &d_bias));
    }
    OP_REQUIRES_OK(
        ctx,
        Device::ClassSoftmaxGradient(
            ctx, matrix, FeaturesOf(features), log_partition.flat<float>().data(),
            weights.flat<float>().data(), LabelsOf(labels), label_weights.flat<float>().data(),
            d_features->flat<float>().data(), d_embeddings->flat<float>().data(),
            d_bias == nullptr ? nullptr : d_bias->flat<float>().data(), numbers_));
  }

 private:
  ProductNumbers numbers_ = ProductNumbers::kFloat32;
};

// Registers the ops with a Device for the TensorFlow device `name`. Handles and the inputs that
// determine shapes are in host memory.
#define LARGEOUT_REGISTER_CLASS_SCAN_OPS(name, Functions)                                   \
  REGISTER_KERNEL_BUILDER(Name("LargeoutClassStatistics")                                   \
                              .Device(name)                                                 \
                              .HostMemory("embeddings")                                     \
                              .HostMemory("bias")                                           \
                              .HostMemory("first_class"),                                   \
                          ClassStatisticsOp<Functions>);                                    \
  REGISTER_KERNEL_BUILDER(                                                                  \
      Name("LargeoutLabelLogits").Device(name).HostMemory("embeddings").HostMemory("bias"), \
      LabelLogitsOp<Functions>);                                                            \
  REGISTER_KERNEL_BUILDER(Name("LargeoutClassTopK")                                         \
                              .Device(name)                                                 \
                              .HostMemory("embeddings")                                     \
                              .HostMemory("bias")                                           \
                              .HostMemory("k"),                                             \
                          ClassTopKOp<Functions>);                                          \
  REGISTER_KERNEL_BUILDER(Name("LargeoutClassSoftmaxGradient")                              \
                              .Device(name)                                                 \
                              .HostMemory("embeddings")                                     \
                              .HostMemory("bias"),                                          \
                          ClassSoftmaxGradientOp<Functions>)

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_KERNELS_CLASS_SCAN_OPS_H_
