#include <cuda_runtime_api.h>

#include "custom_ops/cuda/memory.h"

namespace largeout {
namespace cuda {

Status CopyBytes(const void* from, int64_t bytes, void* to, Stream stream) {
  if (bytes <= 0) return kOk;
  return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream);
}

Status FillBytes(int value, int64_t bytes, void* to, Stream stream) {
  if (bytes <= 0) return kOk;
  return cudaMemsetAsync(to, value, bytes, stream);
}

Status CopyToHost(const void* from, int64_t bytes, void* to, Stream stream) {
  if (bytes <= 0) return kOk;
  const Status status = cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream);
  return status == kOk ? cudaStreamSynchronize(stream) : status;
}

Status CopyFromHost(const void* from, int64_t bytes, void* to, Stream stream) {
  if (bytes <= 0) return kOk;
  const Status status = cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream);
  return status == kOk ? cudaStreamSynchronize(stream) : status;
}

}  // namespace cuda
}  // namespace largeout
