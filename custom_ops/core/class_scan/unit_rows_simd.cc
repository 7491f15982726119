#include "custom_ops/core/class_scan/unit_rows_simd.h"

#include "custom_ops/core/base/simd.h"

namespace largeout {
namespace LARGEOUT_SIMD {

void SumRowSquares(const float* row, int64_t dim, float* sum) {
  Floats even = {}, odd = {};
  int64_t k = 0;
  for (; k + 2 * kLanes <= dim; k += 2 * kLanes) {
    const Floats first = Load(row + k), second = Load(row + k + kLanes);
    even += first * first;
    odd += second * second;
  }
  float rest = 0.0f;
  for (; k < dim; ++k) rest += row[k] * row[k];
  *sum = SumLanes(even + odd) + rest;
}

void ScaleRow(const float* row, int64_t dim, float factor, float* copy) {
  const Floats factors = Broadcast(factor);
  int64_t k = 0;
  for (; k + kLanes <= dim; k += kLanes) Store(factors * Load(row + k), copy + k);
  for (; k < dim; ++k) copy[k] = factor * row[k];
}

}  // namespace LARGEOUT_SIMD
}  // namespace largeout
