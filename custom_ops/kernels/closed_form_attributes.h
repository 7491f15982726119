// The attributes of the samplers whose distribution is known in closed form.

#ifndef LARGEOUT_CUSTOM_OPS_KERNELS_CLOSED_FORM_ATTRIBUTES_H_
#define LARGEOUT_CUSTOM_OPS_KERNELS_CLOSED_FORM_ATTRIBUTES_H_

#include "custom_ops/kernels/largeout_op.h"

namespace largeout {

struct ClosedFormAttributes {
  int64_t num_classes;
  int64_t num_sampled;
  bool unique;

  tensorflow::Status Read(tensorflow::OpKernelConstruction* ctx) {
    constexpr int64_t kMaxClasses = int64_t{1} << 31;
    TF_RETURN_IF_ERROR(ctx->GetAttr("num_classes", &num_classes));
    TF_RETURN_IF_ERROR(ReadCount(ctx, "num_sampled", &num_sampled));
    TF_RETURN_IF_ERROR(ctx->GetAttr("unique", &unique));
    if (num_classes > kMaxClasses) {
      return tensorflow::errors::InvalidArgument("num_classes must be at most ", kMaxClasses,
                                                 ", received ", num_classes);
    }
    if (unique && num_sampled > num_classes) {
      return tensorflow::errors::InvalidArgument(
          "unique needs num_sampled <= num_classes, received num_sampled=", num_sampled,
          " and num_classes=", num_classes);
    }
    return tensorflow::OkStatus();
  }
};

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_KERNELS_CLOSED_FORM_ATTRIBUTES_H_
