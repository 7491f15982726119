#include "custom_ops/cuda/class_scan.h"
#include "custom_ops/kernels/class_scan_ops.h"
#include "custom_ops/kernels/gpu_context.h"

namespace largeout {
namespace {

using tensorflow::OpKernelContext;

struct GpuClassScan {
  // Ids are not checked here, see custom_ops/cuda/class_scan.h.
  static absl::Status CheckIds(const tensorflow::Tensor&, int64_t) { return absl::OkStatus(); }

  static absl::Status CheckTopK(int64_t k) {
    if (k <= cuda::kMostTopK) return absl::OkStatus();
    return tensorflow::errors::InvalidArgument("on a GPU k must be at most ", cuda::kMostTopK,
                                               ", got ", k,
                                               "; take more under tf.device('CPU')");
  }

  static absl::Status CheckNumbers(ProductNumbers numbers) {
    if (numbers == ProductNumbers::kFloat32) return absl::OkStatus();
    return tensorflow::errors::InvalidArgument(
        "exact passes with bfloat16 products run only on CPUs; on a GPU use compute_dtype "
        "'float32', or run them under tf.device('CPU')");
  }

  static absl::Status CheckUnitLength() {
    return tensorflow::errors::InvalidArgument(
        "passes with unit_length run only on CPUs; run them under tf.device('CPU')");
  }

  static absl::Status ClassStatistics(OpKernelContext* ctx, const ClassMatrix& matrix,
                                      const Features& features, const Labels& labels,
                                      float* log_partition, float* true_logits, int64_t* ranks,
                                      ProductNumbers) {
    GpuScratch scratch;
    TF_RETURN_IF_ERROR(scratch.Allocate(
        ctx,
        cuda::ClassStatisticsScratchBytes(features.batch, matrix.num_classes, labels.width)));
    return FromCuda(cuda::ClassStatistics(matrix, features, labels, scratch.data(),
                                          log_partition, true_logits, ranks, StreamOf(ctx)));
  }

  static absl::Status LabelLogits(OpKernelContext* ctx, const ClassMatrix& matrix,
                                  const Features& features, const Labels& labels,
                                  float* true_logits, ProductNumbers) {
    return FromCuda(cuda::LabelLogits(matrix, features, labels, true_logits, StreamOf(ctx)));
  }

  static absl::Status ClassTopK(OpKernelContext* ctx, const ClassMatrix& matrix,
                                const Features& features, int64_t k, const PackedRows* packed,
                                float* scores, int64_t* ids) {
    if (packed != nullptr) {
      return tensorflow::errors::InvalidArgument(
          "packed_codes can be used only on a CPU. Omit them: a GPU scans as fast in float32");
    }
    GpuScratch scratch;
    TF_RETURN_IF_ERROR(scratch.Allocate(
        ctx, cuda::ClassTopKScratchBytes(features.batch, matrix.num_classes, k)));
    return FromCuda(
        cuda::ClassTopK(matrix, features, k, scratch.data(), scores, ids, StreamOf(ctx)));
  }

  static absl::Status ClassSoftmaxGradient(OpKernelContext* ctx, const ClassMatrix& matrix,
                                           const Features& features, const float* log_partition,
                                           const float* weights, const Labels& labels,
                                           const float* label_weights, float* d_features,
                                           float* d_embeddings, float* d_bias, ProductNumbers) {
    GpuScratch scratch;
    TF_RETURN_IF_ERROR(
        scratch.Allocate(ctx, cuda::ClassSoftmaxGradientScratchBytes(
                                  features.batch, matrix.num_classes, matrix.dim)));
    return FromCuda(cuda::ClassSoftmaxGradient(
        matrix, features, labels, {log_partition, weights, label_weights}, scratch.data(),
        d_features, d_embeddings, d_bias, StreamOf(ctx)));
  }
};

LARGEOUT_REGISTER_CLASS_SCAN_OPS(GpuDeviceType(), GpuClassScan);

}  // namespace
}  // namespace largeout
