// The search op of inverted files, for every device. A Device has:
//
//   absl::Status CheckLists(const InvertedFileInput& input): OK if the lists are valid, as far
//     as the host can read them.
//   absl::Status Search(OpKernelContext* ctx, const InvertedFile& file, const Tensor& features,
//                       int64_t num_probes, int64_t k, float* scores, int64_t* ids).

#ifndef LARGEOUT_CUSTOM_OPS_KERNELS_INVERTED_FILE_OPS_H_
#define LARGEOUT_CUSTOM_OPS_KERNELS_INVERTED_FILE_OPS_H_

#include "custom_ops/kernels/checks.h"
#include "custom_ops/kernels/inverted_file_input.h"
#include "custom_ops/kernels/largeout_op.h"

namespace largeout {

template <class Device>
class InvertedFileSearchOp : public LargeoutOp {
 public:
  explicit InvertedFileSearchOp(tensorflow::OpKernelConstruction* ctx) : LargeoutOp(ctx) {
    OP_REQUIRES_OK(ctx, ReadCount(ctx, "num_probes", &num_probes_));
  }

  void Run(tensorflow::OpKernelContext* ctx) override {
    const tensorflow::Tensor& features = ctx->input(0);
    InvertedFileInput input;
    OP_REQUIRES_OK(ctx, input.Read(ctx));
    OP_REQUIRES_OK(ctx, Device::CheckLists(input));
    OP_REQUIRES_OK(ctx, CheckWidth(features, "features", input.dim(), "means"));
    int64_t k = 0;
    OP_REQUIRES_OK(ctx, ReadK(ctx, &k));
    tensorflow::Tensor *scores, *ids;
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 0, {features.dim_size(0), k}, &scores));
    OP_REQUIRES_OK(ctx, AllocateOutput(ctx, 1, {features.dim_size(0), k}, &ids));
    OP_REQUIRES_OK(ctx,
                   Device::Search(ctx, input.file(), features, num_probes_, k,
                                  scores->flat<float>().data(), ids->flat<int64_t>().data()));
  }

 private:
  static absl::Status ReadK(tensorflow::OpKernelContext* ctx, int64_t* k) {
    const tensorflow::Tensor* input;
    TF_RETURN_IF_ERROR(ctx->input("k", &input));
    TF_RETURN_IF_ERROR(CheckScalar(*input, "k"));
    *k = input->scalar<int64_t>()();
    return CheckCount("k", *k);
  }

  int64_t num_probes_;
};

// Registers the op with a Device for the TensorFlow device `name`. Handles are in host memory.
#define LARGEOUT_REGISTER_INVERTED_FILE_OPS(name, Functions) \
  REGISTER_KERNEL_BUILDER(Name("LargeoutInvertedFileSearch") \
                              .Device(name)                  \
                              .HostMemory("means")           \
                              .HostMemory("mean_bias")       \
                              .HostMemory("offsets")         \
                              .HostMemory("ids")             \
                              .HostMemory("codes")           \
                              .HostMemory("scales")          \
                              .HostMemory("k"),              \
                          InvertedFileSearchOp<Functions>)

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_KERNELS_INVERTED_FILE_OPS_H_
