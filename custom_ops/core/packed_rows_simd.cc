#include "custom_ops/core/packed_rows_simd.h"

#include "custom_ops/core/simd.h"

namespace largeout {
namespace LARGEOUT_SIMD {
namespace {

static_assert(kPackedMultiple % kLanes == 0, "codes are written kLanes at a time");

inline constexpr int64_t kNumbersOfLine = 64 / sizeof(float);  // of the cache

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

// Stores the low byte of each lane.
inline void StoreBytes(Ints value, void* to) {
#if defined(__AVX512F__)
  _mm_storeu_si128((__m128i*)to, _mm512_maskz_cvtepi32_epi8(0xffff, (__m512i)value));
#else
  int32_t lanes[kLanes];
  uint8_t bytes[kLanes];
  std::memcpy(lanes, &value, sizeof(lanes));
  for (int lane = 0; lane < kLanes; ++lane) bytes[lane] = static_cast<uint8_t>(lanes[lane]);
  std::memcpy(to, bytes, sizeof(bytes));
#endif
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

inline void PackGroup(const Quantizer* rows, int64_t width, uint8_t* to) {
  for (int64_t k = 0; k < width; k += kPackedMultiple) {
    int32_t codes[kGroupRows][kPackedMultiple / kCodesTogether];
    static_assert(sizeof(codes[0]) == kPackedMultiple, "four codes in an integer");
    for (int r = 0; r < kGroupRows; ++r) {
      for (int i = 0; i < kPackedMultiple; i += kLanes) {
        StoreBytes(rows[r].Numbers(k + i) + kCodeOfZero,
                   reinterpret_cast<uint8_t*>(codes[r]) + i);
      }
    }
    for (int i = 0; i < kPackedMultiple / kCodesTogether; ++i) {
      for (int r = 0; r < kGroupRows; ++r, to += kCodesTogether) {
        std::memcpy(to, &codes[r][i], kCodesTogether);
      }
    }
  }
}

}  // namespace

void PackGroups(const ClassMatrix& matrix, const int32_t* ids, int64_t begin, int64_t end,
                const PackedRows& packed) {
  const auto row_of = [&](int64_t i) { return ids == nullptr ? i : ids[i]; };
  for (int64_t group = begin; group < end; ++group) {
    Quantizer rows[kGroupRows] = {};
    float* scales = packed.group_scales(group);
    float* biases = packed.group_biases(group);
    for (int r = 0; r < kGroupRows; ++r) {
      const int64_t i = group * kGroupRows + r;
      scales[r] = 0.0f;
      biases[r] = -__builtin_inff();
      if (i >= packed.num_rows) continue;
      const int64_t row = row_of(i);
      rows[r] = MakeQuantizer(matrix.embeddings + row * matrix.dim, matrix.dim, kMostOfRow);
      const float bias = matrix.bias == nullptr ? 0.0f : matrix.bias[row];
      const float scale = rows[r].scale;
      if (scale != scale || bias - bias != 0.0f) continue;
      scales[r] = scale;
      biases[r] = bias;
    }
    const int64_t next = (group + 1) * kGroupRows;
    for (int64_t i = next; i < next + kGroupRows && i < packed.num_rows; ++i) {
      const float* row = matrix.embeddings + row_of(i) * matrix.dim;
      for (int64_t k = 0; k < matrix.dim; k += kNumbersOfLine) __builtin_prefetch(row + k);
    }
    PackGroup(rows, packed.width, packed.group_codes(group));
  }
}

void PackQueries(const float* features, int64_t dim, int64_t begin, int64_t end,
                 const PackedQueries& packed) {
  for (int64_t i = begin; i < end; ++i) {
    const Quantizer quantizer = MakeQuantizer(features + i * dim, dim, packed.most);
    Ints sums{};
    for (int64_t k = 0; k < packed.width; k += kLanes) {
      const Ints codes = quantizer.Numbers(k);
      StoreBytes(codes, packed.codes + i * packed.width + k);
      sums += codes;
    }
    packed.scales[i] = quantizer.scale;
    packed.sums[i] = 0;
    for (int lane = 0; lane < kLanes; ++lane) packed.sums[i] += sums[lane];
  }
}

}  // namespace LARGEOUT_SIMD
}  // namespace largeout
