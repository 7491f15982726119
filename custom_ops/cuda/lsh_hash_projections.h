// The values of SimHash for a panel, computed by a block. A thread keeps kRadix numbers of a
// row in registers, so it does log2(kRadix) steps of the fast Hadamard transform between two
// barriers. The additions are in the same order as on the CPU.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_LSH_HASH_PROJECTIONS_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_LSH_HASH_PROJECTIONS_H_

#include <cstdint>
#include <type_traits>

#include "custom_ops/cuda/block.h"
#include "custom_ops/cuda/block_tools.h"
#include "custom_ops/cuda/float_bits.h"
#include "custom_ops/cuda/lsh_hash_panel.h"

namespace largeout {
namespace cuda {

// log2(R) steps of the transform.
template <int R>
LARGEOUT_DEVICE inline void Butterflies(float (&x)[R]) {
  LARGEOUT_UNROLL
  for (int half = 1; half < R; half *= 2) {
    LARGEOUT_UNROLL
    for (int i = 0; i < R; ++i) {
      if (i & half) continue;
      const float sum = x[i] + x[i + half];
      x[i + half] = x[i] - x[i + half];
      x[i] = sum;
    }
  }
}

// Multiplies x[i] by the sign of its coordinate, which is stored as the bits of a float.
LARGEOUT_DEVICE inline void MultiplyBySigns(const int32_t* signs, bool by_fours,
                                            float (&x)[kRadix]) {
#ifdef __CUDA_ARCH__
  if (by_fours) {
    LARGEOUT_UNROLL
    for (int i = 0; i < kRadix; i += 4) {
      const FourFloats four = LoadFour(reinterpret_cast<const float*>(signs + i));
      LARGEOUT_UNROLL
      for (int j = 0; j < 4; ++j) x[i + j] = RoundedProduct(x[i + j], four.at[j]);
    }
    return;
  }
#endif
  LARGEOUT_UNROLL
  for (int i = 0; i < kRadix; ++i) x[i] = RoundedProduct(x[i], FloatOf(signs[i]));
}

// x = the kRadix numbers of a row that start at `first`; 0 after the end of the row, and for
// rows that do not exist.
LARGEOUT_DEVICE inline void LoadPart(const PanelRows& rows, int64_t row, int64_t first,
                                     float (&x)[kRadix]) {
  const int64_t known = row < rows.count ? rows.dim - first : 0;
  const float* from = rows.data + row * rows.dim + first;
  if (rows.by_fours) {
    LARGEOUT_UNROLL
    for (int i = 0; i < kRadix; i += 4) {
      const FourFloats four = i < known ? LoadFour(from + i) : FourFloats{};
      LARGEOUT_UNROLL
      for (int j = 0; j < 4; ++j) x[i + j] = four.at[j];
    }
  } else {
    LARGEOUT_UNROLL
    for (int i = 0; i < kRadix; ++i) x[i] = i < known ? from[i] : 0.0f;
  }
}

// Transforms all rows of a panel. Rows are divided into parts of kRadix numbers. In each pass a
// thread processes kRadix numbers of one row.
template <class Block>
class PanelTransform {
 public:
  LARGEOUT_DEVICE PanelTransform(const Block& block, const HashPanel& panel)
      : block_(block),
        log_parts_(panel.log_parts),
        size_(static_cast<int>(panel.size)),
        all_parts_(1 << (panel.log_rows + panel.log_parts)) {}

  // The first steps. read(part, x) provides the numbers.
  template <class Read>
  LARGEOUT_DEVICE void First(const Read& read, float* numbers) const {
    block_.ForEachThread([&](int t) {
      for (int part = t; part < all_parts_; part += block_.size()) {
        float x[kRadix];
        read(part, x);
        Butterflies(x);
        float* const to = numbers + PlaceOf(kRadix * part);
        LARGEOUT_UNROLL
        for (int i = 0; i < kRadix; ++i) to[i] = x[i];
      }
    });
  }

  // The other steps. Calls finish(row, i, step, x) with the finished numbers i, i + step, ...
  // of a row in x. If it returns true, x is written back.
  template <class Finish>
  LARGEOUT_DEVICE void Rest(float* numbers, const Finish& finish) const {
    if (size_ <= kRadix * kRadix) {
      return Last(std::integral_constant<int, kRadix>(), numbers, finish);
    }
    int step = kRadix;
    for (; size_ / step > kRadix; step *= kRadix) {
      Pass<kRadix>(step, numbers, [](int, int, int, auto&) { return true; });
    }
    Last(step, numbers, finish);
  }

 private:
  // Step: int, or an integral_constant, with which the compiler knows all distances.
  template <class Step, class Finish>
  LARGEOUT_DEVICE void Last(Step step, float* numbers, const Finish& finish) const {
    switch (size_ / step) {
      case 2:
        return Pass<2>(step, numbers, finish);
      case 4:
        return Pass<4>(step, numbers, finish);
      case 8:
        return Pass<8>(step, numbers, finish);
      default:
        return Pass<16>(step, numbers, finish);
    }
  }

  // log2(R) steps on numbers that are `step` apart.
  template <int R, class Step, class Finish>
  LARGEOUT_DEVICE void Pass(Step step, float* numbers, const Finish& finish) const {
    const int parts = 1 << log_parts_, apart = PlaceOf<int>(step);
    block_.ForEachThread([&](int t) {
      for (int part = t; part < all_parts_; part += block_.size()) {
        const int row = part >> log_parts_;
        LARGEOUT_UNROLL
        for (int k = 0; k < kRadix / R; ++k) {
          const int one = (part & (parts - 1)) + k * parts;
          const int low = one & (step - 1), i = (one - low) * R + low;
          float* const at = numbers + PlaceOf(row * size_ + i);
          float x[R];
          LARGEOUT_UNROLL
          for (int j = 0; j < R; ++j) x[j] = at[j * apart];
          Butterflies(x);
          if (!finish(row, i, step, x)) continue;
          LARGEOUT_UNROLL
          for (int j = 0; j < R; ++j) at[j * apart] = x[j];
        }
      }
    });
  }

  const Block& block_;
  const int log_parts_, size_;
  const int all_parts_;  // the number of parts of all rows
};

// Rotates coordinates k and k + half, for k = i, i + step, ..., by angle k.
template <int R>
LARGEOUT_DEVICE inline void TurnPairs(const int32_t* cosines, int64_t half, int i, int step,
                                      float (&x)[R]) {
  LARGEOUT_UNROLL
  for (int j = 0; j < R / 2; ++j) {
    const int32_t* const at = cosines + i + j * step;
    const float cosine = FloatOf(at[0]), sine = FloatOf(at[half]);
    const float a = x[j], b = x[j + R / 2];
    x[j] = RoundedProduct(a, cosine) + RoundedProduct(b, sine);
    x[j + R / 2] = RoundedProduct(b, cosine) - RoundedProduct(a, sine);
  }
}

// values: as in HashPanel. The functions are laid out as in core/lsh/lsh_hash_functions.h.
template <class Block>
LARGEOUT_DEVICE void FindSigns(const Block& block, const HashPanel& panel,
                               const int32_t* functions, const PanelRows& rows, float* spread,
                               int32_t* values) {
  const PanelTransform<Block> transform(block, panel);
  const int64_t size = panel.size;
  const auto first_of = [&](int part) {
    return kRadix * (part & ((1 << panel.log_parts) - 1));
  };
  const auto read_rows = [&](int part, float (&x)[kRadix]) {
    LoadPart(rows, part >> panel.log_parts, first_of(part), x);
    MultiplyBySigns(functions + first_of(part), rows.by_fours, x);
  };
  transform.First(read_rows, spread);
  transform.Rest(spread, [&](int, int i, int step, auto& x) {
    TurnPairs(functions + size, size / 2, i, step, x);
    return true;
  });
  float* const projections = spread + (panel.KeepsSpread() ? panel.num_numbers / 2 : 0);
  for (int64_t h = 0; h < panel.num_values; h += size) {
    const auto left = static_cast<int>(panel.num_values - h);
    const auto read_spread = [&](int part, float (&x)[kRadix]) {
      const float* const from = spread + PlaceOf(kRadix * part);
      LARGEOUT_UNROLL
      for (int i = 0; i < kRadix; ++i) x[i] = from[i];
      MultiplyBySigns(functions + 2 * size + h + first_of(part), rows.by_fours, x);
    };
    transform.First(read_spread, projections);
    transform.Rest(projections, [&](int row, int i, int step, auto& x) {
      int32_t* const to = values + row * panel.value_stride + h + i;
      LARGEOUT_UNROLL
      for (int j = 0; j < static_cast<int>(sizeof(x) / sizeof(float)); ++j) {
        if (i + j * step < left) to[j * step] = x[j] > 0;
      }
      return false;
    });
  }
}

}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_LSH_HASH_PROJECTIONS_H_
