// Scored classes as integers that one comparison orders, and their sorting by a block.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_SCORE_KEYS_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_SCORE_KEYS_H_

#include <cstdint>

#include "custom_ops/core/class_scan/class_scan_types.h"
#include "custom_ops/cuda/block_tools.h"
#include "custom_ops/cuda/float_bits.h"

namespace largeout {
namespace cuda {

inline constexpr int32_t kNoId = 2147483647;

// Higher keys rank before lower ones: by decreasing score, then by increasing id.
using ScoreKey = uint64_t;

// Lower than the key of any class.
inline constexpr ScoreKey kNoKey = 0;

inline constexpr uint32_t kSignBit = 0x80000000u;

// REQUIRES: the score is not NaN. A score of -0 becomes 0, to which it is equal.
LARGEOUT_DEVICE inline ScoreKey KeyOf(const ScoredClass& entry) {
  const uint32_t bits = BitsOf(entry.score + 0.0f);
  // The bits of negative floats increase as the floats decrease, so they are inverted.
  const uint32_t rising = (bits & kSignBit) != 0 ? ~bits : bits | kSignBit;
  return static_cast<ScoreKey>(rising) << 32 | ~static_cast<uint32_t>(entry.id);
}

LARGEOUT_DEVICE inline ScoredClass EntryOf(ScoreKey key) {
  const auto rising = static_cast<uint32_t>(key >> 32);
  return {FloatOf((rising & kSignBit) != 0 ? rising & ~kSignBit : ~rising),
          static_cast<int32_t>(~static_cast<uint32_t>(key))};
}

// How many of `size` decreasing keys are above `bound`. The number of steps does not depend on
// `bound`.
LARGEOUT_DEVICE inline int CountAbove(const ScoreKey* keys, int size, ScoreKey bound) {
  int count = 0;
  LARGEOUT_UNROLL
  for (int half; size > 1; size -= half) {
    half = size / 2;
    if (keys[count + half - 1] > bound) count += half;
  }
  return count + (size > 0 && keys[count] > bound);
}

// Merges key i into the merged run of its pair. The keys of each run of length `run` decrease.
LARGEOUT_DEVICE inline void MergeKey(const ScoreKey* from, int i, int run, ScoreKey* to) {
  const int in_run = i & (run - 1), pair = i & -(2 * run);
  const bool is_second = (i & run) != 0;
  // For equal keys, that of the first run comes first.
  const int above = CountAbove(from + pair + (is_second ? 0 : run), run, from[i] - is_second);
  to[pair + in_run + above] = from[i];
}

// Sorts `count` keys in decreasing order, and returns the array that holds the result, `keys`
// or `spare`. Both have room for kRoom keys, a power of two, and contain kNoKey after `count`
// keys. All threads of the block call it.
template <int kRoom, class Block>
LARGEOUT_DEVICE ScoreKey* SortScores(const Block& block, int count, ScoreKey* keys,
                                     ScoreKey* spare) {
  LARGEOUT_UNROLL
  for (int run = 1; run < kRoom; run *= 2) {
    if (run >= count) break;
    block.ForEachThread([&](int thread) {
      for (int i = thread; i < count; i += block.size()) MergeKey(keys, i, run, spare);
    });
    ScoreKey* const sorted = spare;
    spare = keys;
    keys = sorted;
  }
  return keys;
}

}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_SCORE_KEYS_H_
