// Marks the functions that CPU and GPU code share, so that a formula is written once.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_BASE_HOST_DEVICE_H_
#define LARGEOUT_CUSTOM_OPS_CORE_BASE_HOST_DEVICE_H_

#ifdef __CUDACC__
#define LARGEOUT_HOST_DEVICE __host__ __device__
#else
#define LARGEOUT_HOST_DEVICE
#endif

#endif  // LARGEOUT_CUSTOM_OPS_CORE_BASE_HOST_DEVICE_H_
