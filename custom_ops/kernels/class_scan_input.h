// The inputs of the passes over all classes, for every device.

#ifndef LARGEOUT_CUSTOM_OPS_KERNELS_CLASS_SCAN_INPUT_H_
#define LARGEOUT_CUSTOM_OPS_KERNELS_CLASS_SCAN_INPUT_H_

#include "custom_ops/core/class_scan_types.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace largeout {

inline Features FeaturesOf(const tensorflow::Tensor& features) {
  return {features.flat<float>().data(), features.dim_size(0)};
}

inline Labels LabelsOf(const tensorflow::Tensor& labels) {
  return {labels.flat<int64_t>().data(), labels.dim_size(1)};
}

inline absl::Status CheckLabelShape(const tensorflow::Tensor& labels, int64_t batch) {
  if (!tensorflow::TensorShapeUtils::IsMatrix(labels.shape()) || labels.dim_size(0) != batch) {
    return tensorflow::errors::InvalidArgument("labels must be [batch, num_labels] with batch ",
                                               batch, " as in the features, got ",
                                               labels.shape().DebugString());
  }
  return absl::OkStatus();
}

// labels must be [batch, num_labels] with ids in [-1, num_classes). Host memory.
inline absl::Status CheckLabels(const tensorflow::Tensor& labels, int64_t batch,
                                int64_t num_classes) {
  TF_RETURN_IF_ERROR(CheckLabelShape(labels, batch));
  const auto ids = labels.flat<int64_t>();
  for (int64_t i = 0; i < ids.size(); ++i) {
    if (ids(i) < -1 || ids(i) >= num_classes) {
      return tensorflow::errors::InvalidArgument("labels must be class ids in [0, ",
                                                 num_classes, "), or -1 for padding, got ",
                                                 ids(i), " at row ", i / labels.dim_size(1));
    }
  }
  return absl::OkStatus();
}

inline absl::Status CheckVector(const tensorflow::Tensor& vector, int64_t batch,
                                const char* name) {
  if (!tensorflow::TensorShapeUtils::IsVector(vector.shape()) || vector.dim_size(0) != batch) {
    return tensorflow::errors::InvalidArgument(name, " must be [batch] with batch ", batch,
                                               " as in the features, got ",
                                               vector.shape().DebugString());
  }
  return absl::OkStatus();
}

inline absl::Status CheckLabelWeights(const tensorflow::Tensor& label_weights,
                                      const tensorflow::Tensor& labels) {
  if (label_weights.shape() != labels.shape()) {
    return tensorflow::errors::InvalidArgument("label_weights must have the shape of labels, ",
                                               labels.shape().DebugString(), ", got ",
                                               label_weights.shape().DebugString());
  }
  return absl::OkStatus();
}

// k must be a scalar in [1, num_classes]. Host memory.
inline absl::Status ReadTopK(const tensorflow::Tensor& input, int64_t num_classes, int64_t* k) {
  if (!tensorflow::TensorShapeUtils::IsScalar(input.shape())) {
    return tensorflow::errors::InvalidArgument("k must be a scalar, got shape ",
                                               input.shape().DebugString());
  }
  *k = input.scalar<int64_t>()();
  if (*k < 1 || *k > num_classes) {
    return tensorflow::errors::InvalidArgument("k must be in [1, ", num_classes,
                                               "], the number of classes, got ", *k);
  }
  return absl::OkStatus();
}

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_KERNELS_CLASS_SCAN_INPUT_H_
