// Vectors of floats at the level that the including X_simd.cc is compiled for,
// on the compiler's vector extensions: one source for all instruction sets.
// To be included by X_simd.cc files only (see simd_level.h).

#ifndef LARGEOUT_CUSTOM_OPS_CORE_SIMD_H_
#define LARGEOUT_CUSTOM_OPS_CORE_SIMD_H_

#include <cstdint>
#include <cstring>

namespace largeout {
namespace LARGEOUT_SIMD {

#if defined(__AVX512F__)
inline constexpr int kLanes = 16;
inline constexpr int kVectorRegisters = 32;
#elif defined(__AVX2__)
inline constexpr int kLanes = 8;
inline constexpr int kVectorRegisters = 16;
#else
inline constexpr int kLanes = 4;
inline constexpr int kVectorRegisters = 16;
#endif

typedef float Floats __attribute__((vector_size(kLanes * sizeof(float))));
typedef int32_t Ints __attribute__((vector_size(kLanes * sizeof(int32_t))));

inline Floats Load(const float* from) {
  Floats value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

inline void Store(Floats value, float* to) { std::memcpy(to, &value, sizeof(value)); }

inline Floats Broadcast(float value) { return value - Floats{}; }

inline Floats Max(Floats a, Floats b) { return a > b ? a : b; }

}  // namespace LARGEOUT_SIMD
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_SIMD_H_
