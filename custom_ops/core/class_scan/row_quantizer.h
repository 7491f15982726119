// Quantises rows of floats to small integers, and bounds the errors. For X_simd.cc files only.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_CLASS_SCAN_ROW_QUANTIZER_H_
#define LARGEOUT_CUSTOM_OPS_CORE_CLASS_SCAN_ROW_QUANTIZER_H_

#include <cstdint>

#include "custom_ops/core/base/simd.h"

namespace largeout {
namespace LARGEOUT_SIMD {

// kLanes numbers of the row, starting at the k-th; 0 after its end.
inline Floats LoadAt(const float* row, int64_t k, int64_t dim) {
  if (k + kLanes <= dim) return Load(row + k);
  Floats value{};
  if (k < dim) std::memcpy(&value, row + k, (dim - k) * sizeof(float));
  return value;
}

// The largest magnitude in the row; not finite if the row is not.
inline float LargestMagnitude(const float* row, int64_t dim) {
  Ints largest{};  // as integers, magnitudes keep their order, and NaN is above infinity
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

// How a row of floats is converted to small integers.
struct Quantizer {
  const float* row;
  int64_t dim;   // 0 for rows that become all 0: too small, or not finite
  float factor;  // number = round(float * factor)
  float scale;   // the float that the number 1 represents; NaN if the row is not finite

  // kLanes numbers, starting at the k-th.
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

// Upper bounds of a quantised row: of the norm of the floats that its numbers represent, and of
// the norm of their difference from the row. Infinite or NaN if the row is not finite.
struct QuantizedNorms {
  float norm, error;
};

// An upper bound of the relative rounding error of a sum of `dim` terms.
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
  if (quantizer.dim == 0) {  // all numbers are 0
    return {0.0f, (LargestMagnitude(quantizer.row, dim) + __FLT_MIN__) * root * wider};
  }
  // The product of a float and the factor, and the scale, have 3 rounding errors of numbers up
  // to 127.
  const float rounding = 4 * 128 * 0x1p-24f * root;
  return {quantizer.scale * wider * __builtin_sqrtf(SumLanes(squares)),
          quantizer.scale * wider * (__builtin_sqrtf(SumLanes(differences)) + rounding)};
}

}  // namespace LARGEOUT_SIMD
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_CLASS_SCAN_ROW_QUANTIZER_H_
