#include <algorithm>

#include "custom_ops/cuda/inverted_file.h"
#include "custom_ops/kernels/gpu_context.h"
#include "custom_ops/kernels/inverted_file_ops.h"

namespace largeout {
namespace {

using tensorflow::OpKernelContext;
using tensorflow::Tensor;

struct GpuInvertedFile {
  // Offsets and ids are not checked here, see custom_ops/cuda/inverted_file.h.
  static absl::Status CheckLists(const InvertedFileInput&) { return absl::OkStatus(); }

  static absl::Status Search(OpKernelContext* ctx, const InvertedFile& file,
                             const Tensor& features, int64_t num_probes, int64_t k,
                             float* scores, int64_t* ids) {
    const cuda::ListSearch search = {features.dim_size(0), features.dim_size(1),
                                     std::min(num_probes, file.num_lists), k};
    if (search.num_probes > cuda::kMostFound || k > cuda::kMostFound) {
      return tensorflow::errors::InvalidArgument(
          "on a GPU num_probes and k must be at most ", cuda::kMostFound, ", got ",
          search.num_probes, " and ", k, "; search more under tf.device('CPU')");
    }
    GpuScratch scratch;
    TF_RETURN_IF_ERROR(scratch.Allocate(ctx, cuda::SearchListsScratchBytes(file, search)));
    return FromCuda(cuda::SearchLists(file, features.flat<float>().data(), search,
                                      scratch.data(), scores, ids, StreamOf(ctx)));
  }
};

LARGEOUT_REGISTER_INVERTED_FILE_OPS(GpuDeviceType(), GpuInvertedFile);

}  // namespace
}  // namespace largeout
