#include "custom_ops/core/class_scan/packed_rows_simd.h"

#include "custom_ops/core/base/bfloat16_rows_simd.h"
#include "custom_ops/core/base/simd.h"
#include "custom_ops/core/class_scan/row_quantizer.h"

namespace largeout {
namespace LARGEOUT_SIMD {
namespace {

static_assert(kPackedMultiple % kLanes == 0, "codes are written kLanes at a time");

inline constexpr int64_t kNumbersOfLine = 64 / sizeof(float);  // in a cache line

// Stores the low byte of each lane.
inline void StoreBytes(Ints value, void* to) {
#if defined(__AVX512F__)
  _mm_storeu_si128((__m128i*)to, _mm512_maskz_cvtepi32_epi8(0xffff, (__m512i)value));
#elif defined(__aarch64__)
  const uint16x4_t halves = vmovn_u32((uint32x4_t)value);
  const uint8x8_t bytes = vmovn_u16(vcombine_u16(halves, halves));
  std::memcpy(to, &bytes, kLanes);
#else
  int32_t lanes[kLanes];
  uint8_t bytes[kLanes];
  std::memcpy(lanes, &value, sizeof(lanes));
  for (int lane = 0; lane < kLanes; ++lane) bytes[lane] = static_cast<uint8_t>(lanes[lane]);
  std::memcpy(to, bytes, sizeof(bytes));
#endif
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

// The bounds of a row, laid out as [3, kGroupRows] from the first row of a group.
inline void WriteBounds(const Quantizer& row, float bias, int64_t dim, float* bounds) {
  constexpr float kInfinity = __builtin_inff();
  const QuantizedNorms norms = NormsOf(row, dim);
  const float size = bias < 0 ? -bias : bias;
  const bool is_bounded = norms.norm + norms.error < kMostBounded && size < kMostBounded;
  const bool has_logit = norms.error == norms.error && bias > -kInfinity;
  const float rounding = RoundingOf(dim);
  bounds[0] = has_logit && is_bounded ? norms.error * (1.0f + rounding) : 0.0f;
  bounds[kGroupRows] = has_logit && is_bounded ? norms.norm : 0.0f;
  const float high = bias + rounding * size + 4 * (dim + 64) * __FLT_MIN__;
  bounds[2 * kGroupRows] = !has_logit ? -kInfinity : is_bounded ? high : kInfinity;
}

}  // namespace

void PackGroups(const ClassMatrix& matrix, const int32_t* ids, int64_t begin, int64_t end,
                const PackedRows& packed, float* wide) {
  const auto row_of = [&](int64_t i) { return ids == nullptr ? i : ids[i]; };
  for (int64_t group = begin; group < end; ++group) {
    Quantizer rows[kGroupRows] = {};
    float* scales = packed.group_scales(group);
    float* biases = packed.group_biases(group);
    for (int r = 0; r < kGroupRows; ++r) {
      const int64_t i = group * kGroupRows + r;
      scales[r] = 0.0f;
      biases[r] = -__builtin_inff();
      if (packed.bounds != nullptr) {
        float* bounds = packed.group_bounds(group) + r;
        bounds[0] = bounds[kGroupRows] = 0.0f;
        bounds[2 * kGroupRows] = -__builtin_inff();
      }
      if (i >= packed.num_rows) continue;
      const int64_t row = row_of(i);
      const float* numbers = matrix.embeddings + row * matrix.dim;
      if (wide != nullptr) {
        WidenRow(matrix.bfloat16_rows + row * matrix.dim, matrix.dim, wide + r * matrix.dim);
        numbers = wide + r * matrix.dim;
      }
      rows[r] = MakeQuantizer(numbers, matrix.dim, kMostOfRow);
      const float bias = matrix.bias == nullptr ? 0.0f : matrix.bias[row];
      if (packed.bounds != nullptr) {
        WriteBounds(rows[r], bias, matrix.dim, packed.group_bounds(group) + r);
      }
      const float scale = rows[r].scale;
      if (scale != scale || bias - bias != 0.0f) continue;
      scales[r] = scale;
      biases[r] = bias;
    }
    const int64_t next = (group + 1) * kGroupRows;
    for (int64_t i = next; wide == nullptr && i < next + kGroupRows && i < packed.num_rows;
         ++i) {
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
    const QuantizedNorms norms = NormsOf(quantizer, dim);
    packed.norms[i] = norms.norm + norms.error;
    packed.errors[i] = norms.error + RoundingOf(dim) * packed.norms[i];
    packed.scales[i] = quantizer.scale;
    packed.sums[i] = 0;
    for (int lane = 0; lane < kLanes; ++lane) packed.sums[i] += sums[lane];
  }
}

}  // namespace LARGEOUT_SIMD
}  // namespace largeout
