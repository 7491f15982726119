#include <algorithm>

#include "custom_ops/cuda/inverted_file.h"
#include "custom_ops/kernels/gpu_context.h"
#include "custom_ops/kernels/inverted_file_input.h"

namespace largeout {
namespace {

using tensorflow::DEVICE_GPU;
using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::errors::InvalidArgument;

class InvertedFileSearchGpuOp : public OpKernel {
 public:
  explicit InvertedFileSearchGpuOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("num_probes", &num_probes_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("k", &k_));
  }

  void Compute(OpKernelContext* ctx) override {
    const Tensor& features = ctx->input(0);
    InvertedFileInput input;
    OP_REQUIRES_OK(ctx, input.Find(ctx));
    input.LockShared();
    OP_REQUIRES_OK(ctx, input.CheckShapes());
    OP_REQUIRES(ctx, features.dims() == 2 && features.dim_size(1) == input.dim(),
                InvalidArgument("features must be [batch, dim] with dim ", input.dim(),
                                " as in the means, got ", features.shape().DebugString()));
    const InvertedFile file = input.file();
    const cuda::ListSearch search = {features.dim_size(0), input.dim(),
                                     std::min(num_probes_, file.num_lists), k_};
    OP_REQUIRES(ctx, search.num_probes <= cuda::kMostFound && k_ <= cuda::kMostFound,
                InvalidArgument("on a GPU num_probes and k must be at most ", cuda::kMostFound,
                                ", got ", search.num_probes, " and ", k_));
    Tensor *scores, *ids;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, {search.batch, k_}, &scores));
    OP_REQUIRES_OK(ctx, ctx->allocate_output(1, {search.batch, k_}, &ids));
    GpuScratch scratch;
    OP_REQUIRES_OK(ctx, scratch.Allocate(ctx, cuda::SearchListsScratchBytes(file, search)));
    OP_REQUIRES_OK(ctx,
                   FromCuda(cuda::SearchLists(file, features.flat<float>().data(), search,
                                              scratch.data(), scores->flat<float>().data(),
                                              ids->flat<int64_t>().data(), StreamOf(ctx))));
  }

 private:
  int64_t num_probes_, k_;
};

REGISTER_KERNEL_BUILDER(Name("LargeoutInvertedFileSearch")
                            .Device(DEVICE_GPU)
                            .HostMemory("means")
                            .HostMemory("mean_bias")
                            .HostMemory("offsets")
                            .HostMemory("ids")
                            .HostMemory("codes")
                            .HostMemory("scales"),
                        InvertedFileSearchGpuOp);

}  // namespace
}  // namespace largeout
