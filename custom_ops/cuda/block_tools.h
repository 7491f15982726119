// Tools for block bodies, besides phases: words that many threads write, and operations that
// round the same way in all kernels.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_BLOCK_TOOLS_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_BLOCK_TOOLS_H_

#include <cmath>
#include <cstdint>

#include "custom_ops/cuda/block.h"

// Put one of these before a loop, to unroll it completely or by the given factor.
#ifdef __CUDACC__
#define LARGEOUT_PRAGMA(text) _Pragma(#text)
#define LARGEOUT_UNROLL LARGEOUT_PRAGMA(unroll)
#define LARGEOUT_UNROLL_BY(steps) LARGEOUT_PRAGMA(unroll steps)
#else
#define LARGEOUT_UNROLL
#define LARGEOUT_UNROLL_BY(steps)
#endif

namespace largeout {
namespace cuda {

LARGEOUT_DEVICE inline float NotANumber() { return nanf(""); }

LARGEOUT_DEVICE inline void SetBits(uint32_t* word, uint32_t bits) {
#ifdef __CUDA_ARCH__
  atomicOr(word, bits);
#else
  *word |= bits;
#endif
}

LARGEOUT_DEVICE inline void RaiseTo(uint32_t* word, uint32_t value) {
#ifdef __CUDA_ARCH__
  atomicMax(word, value);
#else
  if (value > *word) *word = value;
#endif
}

// a * b + c with one rounding. Sums of such terms in the same order have the same bits in all
// kernels.
LARGEOUT_DEVICE inline float MultiplyAdd(float a, float b, float c) {
#ifdef __CUDA_ARCH__
  return __fmaf_rn(a, b, c);
#else
  return fmaf(a, b, c);
#endif
}

// a * b, rounded before anything is added to it.
LARGEOUT_DEVICE inline float RoundedProduct(float a, float b) {
#ifdef __CUDA_ARCH__
  return __fmul_rn(a, b);
#else
  volatile float product = a * b;
  return product;
#endif
}

// Checks that an address is aligned to 16 bytes, as reads and writes of 16 bytes require. The
// emulated GPU aborts if it is not.
LARGEOUT_DEVICE inline void RequireAligned([[maybe_unused]] const void* sixteen_bytes) {
#ifndef __CUDA_ARCH__
  if (reinterpret_cast<uintptr_t>(sixteen_bytes) % 16 != 0) __builtin_trap();
#endif
}

// Four consecutive floats. REQUIRES: `from` is aligned to 16 bytes.
struct FourFloats {
  float at[4];
};

LARGEOUT_DEVICE inline FourFloats LoadFour(const float* from) {
#ifdef __CUDA_ARCH__
  const float4 four = *reinterpret_cast<const float4*>(from);
  return {{four.x, four.y, four.z, four.w}};
#else
  RequireAligned(from);
  return {{from[0], from[1], from[2], from[3]}};
#endif
}

// Whether LoadFour can read rows of `dim` floats at `rows`.
inline bool AlignedForFour(const float* rows, int64_t dim) {
  return dim % 4 == 0 && reinterpret_cast<uintptr_t>(rows) % 16 == 0;
}

}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_BLOCK_TOOLS_H_
