// Launches of the two kinds of kernels: one thread per item, or a body per block (block.h).
// They run on a GPU if nvcc compiles them, otherwise on the emulated GPU.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_LAUNCH_CUH_
#define LARGEOUT_CUSTOM_OPS_CUDA_LAUNCH_CUH_

#ifdef __CUDACC__
#include "custom_ops/cuda/device_launch.cuh"
#else
#include <emulated_launch.h>
#endif

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_LAUNCH_CUH_
