// The block body of the hashes (lsh_hash.h). A block processes a panel of rows at a time: the
// rows or their transforms are in shared memory, and each thread computes values, then buckets.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_LSH_HASH_BODY_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_LSH_HASH_BODY_H_

#include <cstdint>

#include "custom_ops/core/lsh/lsh_hash_functions.h"
#include "custom_ops/core/lsh/lsh_hash_panel.h"
#include "custom_ops/cuda/block.h"
#include "custom_ops/cuda/block_tools.h"
#include "custom_ops/cuda/lsh_hash.h"
#include "custom_ops/cuda/lsh_hash_panel.h"
#include "custom_ops/cuda/lsh_hash_projections.h"
#include "custom_ops/cuda/lsh_hash_winners.h"

namespace largeout {
namespace cuda {

inline constexpr int kHashThreads = 128;

// kSimHash: whether the family's kind is SimHash. kInShared: whether the panel fits into shared
// memory; the compiler then knows which kind of memory is read.
template <bool kSimHash, bool kInShared>
struct HashBody {
  HashFamily family;
  HashPanel panel;
  BucketRule rule;
  const float* rows;
  int64_t num_rows;
  bool by_fours;  // see PanelRows
  HashCodes codes;
  char* scratch;  // panel.Bytes() per block, unless kInShared

  template <class Block>
  LARGEOUT_DEVICE void operator()(const Block& block, char* shared) const {
    char* const memory = kInShared ? shared : scratch + block.index() * panel.Bytes();
    float* const numbers = panel.Numbers(memory);
    int32_t* const values = panel.Values(memory);
    uint32_t* const filled = panel.Filled(memory);
    const int64_t step = block.num_blocks() * panel.rows();
    for (int64_t first = block.index() * panel.rows(); first < num_rows; first += step) {
      const int64_t left = num_rows - first, count = left < panel.rows() ? left : panel.rows();
      const PanelRows of_panel{rows + first * family.dim, family.dim, count, by_fours};
      if constexpr (kSimHash) {
        FindSigns(block, panel, family.functions, of_panel, numbers, values);
      } else {
        FindWinners(block, family, panel, of_panel, numbers, values, filled);
      }
      WriteCodes(block, first, count, values, filled);
    }
  }

 private:
  // Value h of a row.
  LARGEOUT_DEVICE int32_t ValueAt(const int32_t* of_row, bool filled, int64_t h) const {
    if (kSimHash || of_row[h] != kNoValue) return of_row[h];
    return filled ? of_row[LenderOf(h, panel.num_values, of_row)] : 0;
  }

  // Neighbouring threads write neighbouring rows, because tables are built from codes by table.
  template <class Block>
  LARGEOUT_DEVICE void WriteCodes(const Block& block, int64_t first, int64_t count,
                                  const int32_t* values, const uint32_t* filled) const {
    const int rows_of_panel = panel.rows();
    block.ForEachThread([&](int t) {
      for (int64_t i = t; i < int64_t{rows_of_panel} * family.num_tables; i += block.size()) {
        const auto row = static_cast<int>(i & (rows_of_panel - 1));
        const auto table = static_cast<int>(i >> panel.log_rows);
        if (row >= count) continue;
        const int32_t* const of_row = values + row * panel.value_stride;
        const bool row_filled = !kSimHash && (*filled >> row & 1) != 0;
        uint32_t joined = 0;
        for (int k = 0, h = table; k < family.num_hashes; ++k, h += family.num_tables) {
          const auto value = static_cast<uint32_t>(ValueAt(of_row, row_filled, h));
          joined = JoinValue(joined, value, rule.value_bits);
        }
        const bool elsewhere = codes.last_table != nullptr && table + 1 == family.num_tables;
        int32_t* const to =
            elsewhere ? codes.last_table : codes.codes + table * codes.table_stride;
        to[(first + row) * codes.row_stride] =
            static_cast<int32_t>(BucketOfJoined(joined, rule));
      }
    });
  }
};

}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_LSH_HASH_BODY_H_
