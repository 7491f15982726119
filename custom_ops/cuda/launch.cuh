// Launches of the two kinds of kernels, one thread an item and bodies over blocks (see
// block.h): on a GPU where nvcc compiles them, or on the emulated one.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_LAUNCH_CUH_
#define LARGEOUT_CUSTOM_OPS_CUDA_LAUNCH_CUH_

#ifdef __CUDACC__
#include "custom_ops/cuda/device_launch.cuh"
#else
#include <emulated_launch.h>
#endif

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_LAUNCH_CUH_
