#include <cuda_runtime_api.h>

#include "custom_ops/cuda/stream.h"

namespace largeout {
namespace cuda {

const char* StatusText(Status status) {
  return cudaGetErrorString(static_cast<cudaError_t>(status));
}

}  // namespace cuda
}  // namespace largeout
