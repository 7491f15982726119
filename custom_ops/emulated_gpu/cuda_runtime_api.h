// Included by .cu files that launch no kernel.

#ifndef LARGEOUT_CUSTOM_OPS_EMULATED_GPU_CUDA_RUNTIME_API_H_
#define LARGEOUT_CUSTOM_OPS_EMULATED_GPU_CUDA_RUNTIME_API_H_

#include "custom_ops/emulated_gpu/cuda_runtime.h"

#endif  // LARGEOUT_CUSTOM_OPS_EMULATED_GPU_CUDA_RUNTIME_API_H_
