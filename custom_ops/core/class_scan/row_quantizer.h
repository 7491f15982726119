// Rows of floats as small whole numbers, and how far they are off. For X_simd.cc files only.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_CLASS_SCAN_ROW_QUANTIZER_H_
#define LARGEOUT_CUSTOM_OPS_CORE_CLASS_SCAN_ROW_QUANTIZER_H_

#include <cstdint>

#include "custom_ops/core/base/simd.h"

namespace largeout {
namespace LARGEOUT_SIMD {

// kLanes numbers of the row from the k-th, 0 beyond its end.
inline Floats LoadAt(const float* row, int64_t k, int64_t dim) {
  if (k + kLanes <= dim) return Load(row + k);
  Floats value{};
  if (k < dim) std::memcpy(&value, row + k, (dim - k) * sizeof(float));
  return value;
}

// The largest magnitude in the row; not finite if a number is not.
inline float LargestMagnitude(const float* row, int64_t dim) {
  Ints largest{};  // as integers, magnitudes are in order, and NaN is above infinity
  for (int64_t k = 0; k < dim; k += kLanes) {
    const Ints magnitude = (Ints)LoadAt(row, k, dim) & 0x7fffffff;
    largest = magnitude > largest ? magnitude : largest;
  }
  int32_t lanes[kLanes];
  std::memcpy(lanes, &largest, sizeof(lanes));
  int32_t result = 0;
  for (int lane = 0; lane < kLanes; ++lane)
    result = lanes[lane] > result ? lanes[lane] : result;
  float magnitude;
  std::memcpy(&magnitude, &result, sizeof(magnitude));
  return magnitude;
}

// How a row of floats becomes one of small whole numbers.
struct Quantizer {
  const float* row;
  int64_t dim;   // 0 for rows of which all become 0: those too small, or not finite
  float factor;  // number = round(float * factor)
  float scale;   // what a number of 1 stands for; NaN if a float is not finite

  // kLanes numbers from the k-th.
  Ints Numbers(int64_t k) const {
    // Adding 1.5 * 2^23 leaves the rounded number in the low bits, in two's complement.
    const Floats shifted = LoadAt(row, k, dim) * factor + 12582912.0f;
    return (Ints)shifted - 0x4b400000;
  }
};

inline Quantizer MakeQuantizer(const float* row, int64_t dim, float most) {
  const float largest = LargestMagnitude(row, dim);
  const float factor = most / largest;
  if (factor > 0.0f && factor < 1e30f) return {row, dim, factor, largest / most};
  return {row, 0, 0.0f, largest * 0.0f};
}

// Bounds of a quantised row: no less than the norm of what its numbers stand for, and than
// that of its difference from the row. Infinite or NaN if a float of the row is not finite.
struct QuantizedNorms {
  float norm, error;
};

// More than what rounding takes from a sum of `dim` terms, as a share of it.
inline float RoundingOf(int64_t dim) { return (dim + 64) * 0x1p-23f; }

inline QuantizedNorms NormsOf(const Quantizer& quantizer, int64_t dim) {
  Floats squares{}, differences{};
  for (int64_t k = 0; k < quantizer.dim; k += kLanes) {
    const Floats number = __builtin_convertvector(quantizer.Numbers(k), Floats);
    const Floats difference = LoadAt(quantizer.row, k, dim) * quantizer.factor - number;
    squares += number * number;
    differences += difference * difference;
  }
  const float root = __builtin_sqrtf(static_cast<float>(dim));
  const float wider = 1.0f + RoundingOf(dim);
  if (quantizer.dim == 0) {  // all its numbers are 0
    return {0.0f, (LargestMagnitude(quantizer.row, dim) + __FLT_MIN__) * root * wider};
  }
  // A float times the factor, and the scale, are off by 3 roundings of at most 127.
  const float rounding = 4 * 128 * 0x1p-24f * root;
  return {quantizer.scale * wider * __builtin_sqrtf(SumLanes(squares)),
          quantizer.scale * wider * (__builtin_sqrtf(SumLanes(differences)) + rounding)};
}

}  // namespace LARGEOUT_SIMD
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_CLASS_SCAN_ROW_QUANTIZER_H_
