#include "custom_ops/core/base/simd_level.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace largeout {
namespace {

#if defined(__x86_64__)
bool HasAmx() {
  constexpr unsigned kBfloat16Tiles = 1u << 22, kTiles = 1u << 24;
  unsigned a, b, c, features;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &features)) return false;
  return (features & kBfloat16Tiles) && (features & kTiles);
}
#endif

SimdLevel SupportedLevel() {
#if defined(__x86_64__)
  __builtin_cpu_init();  // this runs before main
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512vnni")) {
    return HasAmx() ? SimdLevel::kAmx : SimdLevel::kAvx512;
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    return SimdLevel::kAvx2;
  }
#endif
  return SimdLevel::kGeneric;
}

SimdLevel WantedLevel() {
  const char* name = std::getenv("LARGEOUT_SIMD_LEVEL");
  if (name != nullptr && std::strcmp(name, "generic") == 0) return SimdLevel::kGeneric;
  if (name != nullptr && std::strcmp(name, "avx2") == 0) return SimdLevel::kAvx2;
  if (name != nullptr && std::strcmp(name, "avx512") == 0) return SimdLevel::kAvx512;
  return SimdLevel::kAmx;
}

SimdLevel ReadLevel() { return std::min(SupportedLevel(), WantedLevel()); }

std::atomic<SimdLevel> active_level{ReadLevel()};

}  // namespace

SimdLevel ActiveSimdLevel() { return active_level.load(std::memory_order_relaxed); }

void largeout_read_simd_level() { active_level = ReadLevel(); }

}  // namespace largeout
