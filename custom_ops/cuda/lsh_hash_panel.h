// The rows that a block hashes together, and the layout of their memory.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_LSH_HASH_PANEL_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_LSH_HASH_PANEL_H_

#include <cstdint>

#include "custom_ops/core/base/rounding.h"
#include "custom_ops/core/lsh/lsh_hash_functions.h"
#include "custom_ops/cuda/block.h"
#include "custom_ops/cuda/block_tools.h"

namespace largeout {
namespace cuda {

// SimHash: how many consecutive numbers a thread keeps in registers.
inline constexpr int kRadix = 16;

LARGEOUT_HOST_DEVICE inline bool IsSimHash(const HashFamily& family) {
  return family.kind == HashKind::kSimHash;
}

// SimHash: the position of number i of a panel. The gaps avoid bank conflicts, both for threads
// that read kRadix consecutive numbers and for threads that read across them.
template <class Int>
LARGEOUT_HOST_DEVICE inline Int PlaceOf(Int i) {
  return i + i / kRadix;
}

struct HashPanel {
  static constexpr int kMostLogRows = 5;  // at most as many rows as a word has bits

  int log_rows;          // 2^log_rows rows
  int log_parts;         // SimHash: parts of kRadix numbers per row
  int64_t size;          // numbers per row: dim, padded for SimHash
  int64_t num_values;    // values per row
  int64_t value_stride;  // distance between the values of two rows
  int64_t num_numbers;   // numbers of all rows, including the gaps between them

  HashPanel(const HashFamily& family, int log_rows)
      : log_rows(log_rows),
        log_parts(0),
        size(IsSimHash(family) ? PaddedDim(family) : family.dim),
        num_values(NumHashValues(family)),
        value_stride(StrideFor(num_values)),
        num_numbers(rows() * size) {
    while (size > int64_t{kRadix} << log_parts) ++log_parts;
    if (IsSimHash(family)) num_numbers = PlaceOf(num_numbers) * (KeepsSpread() ? 2 : 1);
  }

  // 9 more than a multiple of the 32 banks. Value h of all rows is then in different banks, and
  // eight consecutive values of four rows almost are.
  static int64_t StrideFor(int64_t num_values) { return RoundUp(num_values + 23, 32) - 23; }

  LARGEOUT_HOST_DEVICE int rows() const { return 1 << log_rows; }

  // SimHash: whether the rotated rows are needed again for another block of values.
  LARGEOUT_HOST_DEVICE bool KeepsSpread() const { return num_values > size; }

  LARGEOUT_HOST_DEVICE int64_t Bytes() const {
    return 4 * (num_numbers + rows() * value_stride + 1);
  }

  LARGEOUT_DEVICE float* Numbers(char* memory) const {
    return reinterpret_cast<float*>(memory);
  }

  // Value h of row r is at r * value_stride + h.
  LARGEOUT_DEVICE int32_t* Values(char* memory) const {
    return reinterpret_cast<int32_t*>(Numbers(memory) + num_numbers);
  }

  // Bit r: whether row r has a value other than kNoValue.
  LARGEOUT_DEVICE uint32_t* Filled(char* memory) const {
    return reinterpret_cast<uint32_t*>(Values(memory) + rows() * value_stride);
  }
};

// Chooses the number of rows: enough to keep the threads busy, but few enough that several
// blocks fit on a multiprocessor.
inline HashPanel PanelFor(const HashFamily& family, int threads) {
  constexpr int64_t kMostBytes = 24 * 1024;
  for (int log_rows = HashPanel::kMostLogRows;; --log_rows) {
    const HashPanel panel(family, log_rows);
    const bool busy = panel.rows() * panel.size <= int64_t{kRadix} * threads;
    if (log_rows == 0 || (busy && panel.Bytes() <= kMostBytes)) return panel;
  }
}

// Input rows of a panel. Only rows [0, count) exist.
struct PanelRows {
  const float* data;
  int64_t dim;
  int64_t count;
  bool by_fours;  // HashesByFours
};

// Whether rows and functions are aligned for LoadFour.
inline bool HashesByFours(const HashFamily& family, const float* rows) {
  return AlignedForFour(rows, family.dim) &&
         reinterpret_cast<uintptr_t>(family.functions) % 16 == 0;
}

}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_LSH_HASH_PANEL_H_
