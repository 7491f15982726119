#include <chrono>
#include <cstring>

#include "custom_ops/emulated_gpu/cuda_runtime.h"
#include "custom_ops/emulated_gpu/device_memory.h"
#include "custom_ops/emulated_gpu/kernel.h"

using largeout::emulated_gpu::Access;
using largeout::emulated_gpu::DeviceMemory;
using largeout::emulated_gpu::InDeviceMemory;
using largeout::emulated_gpu::Remember;

struct CUstream_st {};
struct CUevent_st {
  std::chrono::steady_clock::time_point time;
};

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "no error";
    case cudaErrorInvalidValue:
      return "invalid argument";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorInvalidConfiguration:
      return "invalid configuration argument";
    case cudaErrorInvalidDevicePointer:
      return "invalid device pointer";
    case cudaErrorInvalidMemcpyDirection:
      return "invalid copy direction for memcpy";
    case cudaErrorNoDevice:
      return "no CUDA-capable device is detected";
    case cudaErrorIllegalAddress:
      return "an illegal memory access was encountered";
  }
  return "unrecognized error code";
}

cudaError_t cudaGetLastError() { return largeout::emulated_gpu::TakeLastError(); }

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {"emulated GPU", 7, 0, size_t{1} << 30};
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = 0;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = 0;
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** memory, size_t bytes) {
  *memory = DeviceMemory::Get().Allocate(bytes);
  return *memory == nullptr ? Remember(cudaErrorMemoryAllocation) : cudaSuccess;
}

cudaError_t cudaFree(void* memory) {
  const bool known = memory == nullptr || DeviceMemory::Get().Free(memory);
  return known ? cudaSuccess : Remember(cudaErrorInvalidDevicePointer);
}

cudaError_t cudaMemset(void* to, int value, size_t bytes) {
  if (!InDeviceMemory(to, static_cast<int64_t>(bytes))) return Remember(cudaErrorInvalidValue);
  const Access access;
  std::memset(to, value, bytes);
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t) {
  return cudaMemset(to, value, bytes);
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  if (bytes == 0) return cudaSuccess;
  const auto size = static_cast<int64_t>(bytes);
  const bool to_device = kind != cudaMemcpyDeviceToHost;
  const bool from_device = kind != cudaMemcpyHostToDevice;
  if (InDeviceMemory(to, size) != to_device || InDeviceMemory(from, size) != from_device) {
    return Remember(cudaErrorInvalidMemcpyDirection);
  }
  const Access access;
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t) {
  return cudaMemcpy(to, from, bytes, kind);
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  *stream = new CUstream_st;
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete stream;
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }

cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  *event = new CUevent_st;
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
  event->time = std::chrono::steady_clock::now();
  return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t stop) {
  *milliseconds = std::chrono::duration<float, std::milli>(stop->time - start->time).count();
  return cudaSuccess;
}
