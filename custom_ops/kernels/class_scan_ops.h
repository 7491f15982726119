// The ops that pass over all classes, for every device.
//
// A Device has the functions of core/class_scan.h as static functions that take the context
// first and return a status, beside CheckLabels and CheckTopK for what it can look at and hold.

#ifndef LARGEOUT_CUSTOM_OPS_KERNELS_CLASS_SCAN_OPS_H_
#define LARGEOUT_CUSTOM_OPS_KERNELS_CLASS_SCAN_OPS_H_

#include "custom_ops/kernels/class_matrix_input.h"
#include "custom_ops/kernels/class_scan_input.h"
#include "custom_ops/kernels/largeout_op.h"

namespace largeout {

template <class Device>
class ClassStatisticsOp : public LargeoutOp {
 public:
  using LargeoutOp::LargeoutOp;

  void Run(tensorflow::OpKernelContext* ctx) override {
    const tensorflow::Tensor& features = ctx->input(0);
    const tensorflow::Tensor& labels = ctx->input(ctx->num_inputs() - 1);
    const int64_t batch = features.dim_size(0);
    ClassMatrixInput input;
    OP_REQUIRES_OK(ctx, input.Read(ctx, features));
    const ClassMatrix matrix = input.matrix();
    OP_REQUIRES_OK(ctx, Device::CheckLabels(labels, batch, matrix.num_classes));
    tensorflow::Tensor *log_partition, *true_logits, *ranks;
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 0, {batch}, &log_partition));
    OP_REQUIRES_OK(ctx, ctx->allocate_output(1, labels.shape(), &true_logits));
    OP_REQUIRES_OK(ctx, ctx->allocate_output(2, labels.shape(), &ranks));
    if (batch == 0) return;
    OP_REQUIRES_OK(ctx, Device::ClassStatistics(
                            ctx, matrix, FeaturesOf(features), LabelsOf(labels),
                            log_partition->flat<float>().data(),
                            true_logits->flat<float>().data(), ranks->flat<int64_t>().data()));
  }
};

template <class Device>
class ClassTopKOp : public LargeoutOp {
 public:
  using LargeoutOp::LargeoutOp;

  void Run(tensorflow::OpKernelContext* ctx) override {
    const tensorflow::Tensor& features = ctx->input(0);
    const int64_t batch = features.dim_size(0);
    ClassMatrixInput input;
    OP_REQUIRES_OK(ctx, input.Read(ctx, features));
    const ClassMatrix matrix = input.matrix();
    int64_t k = 0;
    OP_REQUIRES_OK(ctx, ReadTopK(ctx->input(ctx->num_inputs() - 1), matrix.num_classes, &k));
    OP_REQUIRES_OK(ctx, Device::CheckTopK(k));
    tensorflow::Tensor *scores, *ids;
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 0, {batch, k}, &scores));
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 1, {batch, k}, &ids));
    if (batch == 0) return;
    OP_REQUIRES_OK(
        ctx, Device::ClassTopK(ctx, matrix, FeaturesOf(features), k,
                               scores->flat<float>().data(), ids->flat<int64_t>().data()));
  }
};

template <class Device>
class ClassSoftmaxGradientOp : public LargeoutOp {
 public:
  using LargeoutOp::LargeoutOp;

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
    OP_REQUIRES_OK(ctx, CheckVector(log_partition, batch, "log_partition"));
    OP_REQUIRES_OK(ctx, CheckVector(weights, batch, "weights"));
    OP_REQUIRES_OK(ctx, Device::CheckLabels(labels, batch, matrix.num_classes));
    OP_REQUIRES_OK(ctx, CheckLabelWeights(label_weights, labels));
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
            d_bias == nullptr ? nullptr : d_bias->flat<float>().data()));
  }
};

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_KERNELS_CLASS_SCAN_OPS_H_
