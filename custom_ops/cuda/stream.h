// The part of CUDA that callers of launchers need. Including this requires no CUDA header.
//
// A launcher queues kernels on a stream and returns immediately. All pointers, including
// `scratch`, are to device memory. A ...ScratchBytes function returns the size of the scratch.
// Launchers allocate nothing and never wait.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_STREAM_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_STREAM_H_

struct CUstream_st;

namespace largeout {
namespace cuda {

using Stream = CUstream_st*;  // cudaStream_t
using Status = int;           // cudaError_t

inline constexpr Status kOk = 0;  // cudaSuccess

// CUDA's description of an error.
const char* StatusText(Status status);

}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_STREAM_H_
