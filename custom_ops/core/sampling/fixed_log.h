// The natural logarithm of an integer as an integer. It is the same on every processor; the log
// of a library may differ in the last bit.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_SAMPLING_FIXED_LOG_H_
#define LARGEOUT_CUSTOM_OPS_CORE_SAMPLING_FIXED_LOG_H_

#include <cstdint>

namespace largeout {

inline constexpr int kFixedLogBits = 57;

inline int FloorLog2(uint64_t n) {
#ifdef __CUDA_ARCH__
  return 63 - __clzll(static_cast<long long>(n));
#else
  return 63 - __builtin_clzll(n);
#endif
}

// floor(a b / 2^64): the product of two fractions of 64 bits.
inline uint64_t MultiplyFractions(uint64_t a, uint64_t b) {
  return static_cast<uint64_t>(static_cast<unsigned __int128>(a) * b >> 64);
}

// (artanh(s) / s - 1) / s^2 with s^2 = z, all fractions of 64 bits: 1/3 + z/5 + z^2/7 + ...
// Even and odd powers are separate, so that a processor computes both in parallel. REQUIRES: s
// < 0.172.
inline uint64_t ArtanhSeries(uint64_t z) {
  constexpr uint64_t kOne = ~uint64_t{0};
  const uint64_t square = MultiplyFractions(z, z);
  uint64_t even = kOne / 15 + MultiplyFractions(square, kOne / 19);
  uint64_t odd = kOne / 17 + MultiplyFractions(square, kOne / 21);
  even = kOne / 11 + MultiplyFractions(square, even);
  odd = kOne / 13 + MultiplyFractions(square, odd);
  even = kOne / 7 + MultiplyFractions(square, even);
  odd = kOne / 9 + MultiplyFractions(square, odd);
  even = kOne / 3 + MultiplyFractions(square, even);
  odd = kOne / 5 + MultiplyFractions(square, odd);
  return even + MultiplyFractions(z, odd);
}

// log(n) 2^kFixedLogBits, with an absolute error of 2^-52. With n = 2^e m and m in [sqrt(1/2),
// sqrt(2)): log n = e log 2 + 2 artanh((m - 1) / (m + 1)). The only floating-point operation is
// a division, whose rounding IEEE 754 defines. REQUIRES: 1 <= n <= 2^62.
inline int64_t FixedLog(uint64_t n) {
  constexpr int64_t kLogTwo = 0x162E42FEFA39EF3;      // log(2) 2^57
  constexpr uint64_t kRootTwo = 0x5A827999FCEF3242u;  // sqrt(2) 2^62
  int exponent = FloorLog2(n);
  const uint64_t m = n << (62 - exponent);
  uint64_t one = uint64_t{1} << 62;
  if (m > kRootTwo) {
    one <<= 1;
    ++exponent;
  }
  const bool below = m < one;
  const auto difference = static_cast<double>(below ? one - m : m - one);
  const double ratio = difference / static_cast<double>(m + one);
  const auto s = static_cast<uint64_t>(ratio * 18446744073709551616.0);
  const uint64_t square = MultiplyFractions(s, s);
  const uint64_t artanh =
      s + MultiplyFractions(s, MultiplyFractions(square, ArtanhSeries(square)));
  const auto log_m = static_cast<int64_t>(artanh >> (63 - kFixedLogBits));
  return exponent * kLogTwo + (below ? -log_m : log_m);
}

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_SAMPLING_FIXED_LOG_H_
