// The checks that the emulated GPU makes before it runs a kernel.

#ifndef LARGEOUT_CUSTOM_OPS_EMULATED_GPU_KERNEL_H_
#define LARGEOUT_CUSTOM_OPS_EMULATED_GPU_KERNEL_H_

#include <cstdint>
#include <type_traits>

#include "custom_ops/emulated_gpu/cuda_runtime.h"

namespace largeout {
namespace emulated_gpu {

// The limits of every GPU from compute capability 7.0 on.
inline constexpr int kMostThreads = 1024;
inline constexpr int kMostSharedBytes = 64 * 1024;

// Keeps an error until cudaGetLastError returns it. Returns the error.
cudaError_t Remember(cudaError_t error);
cudaError_t TakeLastError();

// Device memory is accessible while an object of this class exists.
class Access {
 public:
  Access();
  ~Access();
  Access(const Access&) = delete;
  Access& operator=(const Access&) = delete;
};

// Whether [memory, memory + bytes) is part of one allocation.
bool InDeviceMemory(const void* memory, int64_t bytes);

// Whether CheckArguments works. Under AddressSanitizer, nearly every address is mapped, so it
// does not.
#if defined(__GNUC__) && __GNUC__ >= 11 && !defined(__SANITIZE_ADDRESS__)
inline constexpr bool kChecksArguments = true;
#else
inline constexpr bool kChecksArguments = false;
#endif

// Returns cudaErrorIllegalAddress if one of the words at `words` is an address of host memory,
// which a kernel must not access.
cudaError_t CheckWords(const void* words, int64_t bytes);

template <class Arguments>
cudaError_t CheckArguments(Arguments arguments) {
  static_assert(std::is_trivially_copyable_v<Arguments>, "a launch copies its arguments");
  if (!kChecksArguments) return cudaSuccess;
#if defined(__GNUC__) && __GNUC__ >= 11
  __builtin_clear_padding(&arguments);  // else the stack may leave an address
#endif
  return CheckWords(&arguments, sizeof(arguments));
}

// Returns an error if a GPU would refuse to launch a kernel with this configuration.
cudaError_t CheckConfiguration(int threads, int64_t shared_bytes);

// Runs `kernel()`, unless a check of its arguments or of the configuration fails.
template <class Arguments, class Kernel>
cudaError_t Launch(int threads, int64_t shared_bytes, const Arguments& arguments,
                   const Kernel& kernel) {
  cudaError_t status = CheckConfiguration(threads, shared_bytes);
  if (status == cudaSuccess) status = CheckArguments(arguments);
  if (status != cudaSuccess) return status;
  const Access access;
  kernel();
  return cudaSuccess;
}

}  // namespace emulated_gpu
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_EMULATED_GPU_KERNEL_H_
