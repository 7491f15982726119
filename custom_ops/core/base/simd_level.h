// Which instruction set the vectorised parts of core use.
//
// A file X_simd.cc is compiled once per level, with the flags of that level and LARGEOUT_SIMD
// defined as generic, avx2 or avx512. It puts all its definitions into namespace
// largeout::LARGEOUT_SIMD. X.cc chooses between them at run time, once per batch. avx512 is
// AVX-512 with VNNI, which all processors with AVX-512 but the first have. amx is avx512 with
// the tiles that multiply bfloat16 numbers (bfloat16_product.h). Processors other than x86-64
// have only the generic level; on 64-bit ARM it uses NEON.
//
// X_simd.cc must not include std templates: the linker keeps one copy of an inline function,
// and that copy could be the one for AVX-512.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_BASE_SIMD_LEVEL_H_
#define LARGEOUT_CUSTOM_OPS_CORE_BASE_SIMD_LEVEL_H_

namespace largeout {

enum class SimdLevel { kGeneric, kAvx2, kAvx512, kAmx };

// The best level that this processor supports. The environment variable LARGEOUT_SIMD_LEVEL
// (generic, avx2, avx512, amx) lowers it. It is read when the library is loaded, because
// another thread may change the environment later.
SimdLevel ActiveSimdLevel();

// Reads the environment variable again, so that a test can run all levels.
extern "C" void largeout_read_simd_level();

}  // namespace largeout

// Calls `function` of the namespace of the active level.
#if defined(__x86_64__)
#define LARGEOUT_SIMD_DISPATCH(function, ...)       \
  do {                                              \
    switch (::largeout::ActiveSimdLevel()) {        \
      case ::largeout::SimdLevel::kAmx:             \
      case ::largeout::SimdLevel::kAvx512:          \
        ::largeout::avx512::function(__VA_ARGS__);  \
        break;                                      \
      case ::largeout::SimdLevel::kAvx2:            \
        ::largeout::avx2::function(__VA_ARGS__);    \
        break;                                      \
      case ::largeout::SimdLevel::kGeneric:         \
        ::largeout::generic::function(__VA_ARGS__); \
        break;                                      \
    }                                               \
  } while (false)
#else
#define LARGEOUT_SIMD_DISPATCH(function, ...) ::largeout::generic::function(__VA_ARGS__)
#endif

#endif  // LARGEOUT_CUSTOM_OPS_CORE_BASE_SIMD_LEVEL_H_
