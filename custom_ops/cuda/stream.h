// What the callers of launchers know of CUDA: no CUDA header is needed to include this.
//
// A launcher queues kernels on a stream and returns at once. All pointers are
// to device memory, scratch included, whose size the launcher's ...Bytes
// function tells; launchers allocate nothing and never wait.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_STREAM_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_STREAM_H_

struct CUstream_st;

namespace largeout {
namespace cuda {

using Stream = CUstream_st*;  // cudaStream_t
using Status = int;           // cudaError_t

inline constexpr Status kOk = 0;  // cudaSuccess

// What went wrong, as CUDA says it.
const char* StatusText(Status status);

}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_STREAM_H_
