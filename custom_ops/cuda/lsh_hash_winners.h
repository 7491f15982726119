// The values of WTA and DWTA for a panel, computed by a block.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_LSH_HASH_WINNERS_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_LSH_HASH_WINNERS_H_

#include <cstdint>
#include <limits>

#include "custom_ops/core/lsh/lsh_hash_functions.h"
#include "custom_ops/core/lsh/lsh_hash_panel.h"
#include "custom_ops/cuda/block.h"
#include "custom_ops/cuda/block_tools.h"
#include "custom_ops/cuda/lsh_hash_panel.h"

namespace largeout {
namespace cuda {

// values[r * stride] = the position in bin h of the highest number of row r; the first position
// wins ties. Bit r of the result is set if the value is not kNoValue.
template <int kRows>
LARGEOUT_DEVICE inline uint32_t FindWinnersOf(const HashFamily& family, const float* numbers,
                                              int64_t h, int64_t stride, int32_t* values) {
  constexpr float kLowest = -std::numeric_limits<float>::infinity();
  const auto width = static_cast<int>(BinWidth(family));
  const int32_t* const bin = family.functions + h * width;
  float highest[kRows];
  int32_t winner[kRows] = {};
  LARGEOUT_UNROLL
  for (int r = 0; r < kRows; ++r) highest[r] = kLowest;
  for (int j = 0; j < width; ++j) {
    const int32_t k = bin[j];
    const bool known = 0 <= k && k < family.dim;
    LARGEOUT_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const float number = known ? numbers[r * family.dim + k] : kLowest;
      winner[r] = number > highest[r] ? j : winner[r];
      highest[r] = number > highest[r] ? number : highest[r];
    }
  }
  uint32_t filled = 0;
  LARGEOUT_UNROLL
  for (int r = 0; r < kRows; ++r) {
    const bool none = family.kind == HashKind::kDwta && highest[r] == kLowest;
    values[r * stride] = none ? kNoValue : winner[r];
    filled |= uint32_t{!none} << r;
  }
  return filled;
}

// The values of all rows. kRows rows are processed together, so that a bin is read once for
// them.
template <int kRows, class Block>
LARGEOUT_DEVICE void FindWinnersOfAll(const Block& block, const HashFamily& family,
                                      const HashPanel& panel, const float* numbers,
                                      int32_t* values, uint32_t* filled) {
  const auto num_values = static_cast<uint32_t>(panel.num_values);
  const uint32_t count = num_values * (panel.rows() / kRows);
  block.ForEachThread([&](int t) {
    uint32_t mine = 0;
    for (uint32_t i = t; i < count; i += block.size()) {
      const uint32_t row = i / num_values * kRows, h = i % num_values;
      mine |= FindWinnersOf<kRows>(family, numbers + row * family.dim, h, panel.value_stride,
                                   values + row * panel.value_stride + h)
              << row;
    }
    if (mine != 0) SetBits(filled, mine);
  });
}

// values, filled: as in HashPanel.
template <class Block>
LARGEOUT_DEVICE void FindWinners(const Block& block, const HashFamily& family,
                                 const HashPanel& panel, const PanelRows& rows, float* numbers,
                                 int32_t* values, uint32_t* filled) {
  const AbsentNumbers absent = AbsentFor(family.kind);
  const int64_t size = panel.rows() * panel.size, known = rows.count * rows.dim;
  block.ForEachThread([&](int t) {
    if (t == 0) *filled = 0;
    for (int64_t k = t; k < size; k += block.size()) {
      numbers[k] = k < known ? InPanel(rows.data[k], absent) : 0.0f;
    }
  });
  if (panel.rows() < 4) {
    FindWinnersOfAll<1>(block, family, panel, numbers, values, filled);
  } else {
    FindWinnersOfAll<4>(block, family, panel, numbers, values, filled);
  }
}

}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_LSH_HASH_WINNERS_H_
