// Keeps the k best scored classes of each of several streams. One block keeps all the lists.
//
// Each stream ("row" in the code) has an area in memory: its sorted list, followed by the new
// entries that wait. When many entries wait, the block sorts them, merges them into the list,
// and keeps the k best.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_BEST_LISTS_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_BEST_LISTS_H_

#include <cstdint>

#include "custom_ops/core/class_scan/class_scan_types.h"
#include "custom_ops/cuda/block_tools.h"
#include "custom_ops/cuda/score_keys.h"

namespace largeout {
namespace cuda {

// The bytes of shared memory that BestLists needs.
inline int64_t BestListsSharedBytes(int64_t rows, int64_t k, int64_t waiting) {
  return (k + 2 * waiting) * static_cast<int64_t>(sizeof(ScoreKey)) + rows * 16 + 8;
}

// MakeRoom merges a list when at least kWaiting / 2 entries wait. kWaiting is a power of two.
// REQUIRES: a list gets at most kWaiting / 2 entries between two calls of MakeRoom.
template <class Block, int kWaiting>
class BestLists {
 public:
  // `area` [rows, k + kWaiting] is in global memory; `shared` has BestListsSharedBytes. Lists
  // from `num_used` on accept no entry: their limit is infinity.
  LARGEOUT_DEVICE BestLists(const Block& block, int rows, int64_t num_used, int64_t k,
                            ScoreKey* area, char* shared)
      : block_(block),
        rows_(rows),
        k_(static_cast<int>(k)),
        area_(area),
        new_(reinterpret_cast<ScoreKey*>(shared)),
        limits_(reinterpret_cast<float*>(new_ + 2 * kWaiting)),
        kept_(reinterpret_cast<int*>(limits_ + rows)),
        ends_(kept_ + rows),
        crowded_(ends_ + rows),
        num_crowded_(crowded_ + rows),
        list_(reinterpret_cast<ScoreKey*>(num_crowded_ + 2)) {
    block_.ForEachThread([&](int thread) {
      for (int row = thread; row < rows_; row += block_.size()) {
        limits_[row] = row < num_used ? MinusInfinity() : -MinusInfinity();
        kept_[row] = 0;
        ends_[row] = Begin(row) + k_;
      }
      if (thread == 0) *num_crowded_ = 0;
    });
  }

  // Entries with a score of at most limit(row) need not be pushed: they are not among the k
  // best, provided that entries with equal scores are pushed by increasing id.
  LARGEOUT_DEVICE float limit(int row) const { return limits_[row]; }

  // REQUIRES: score > -inf.
  LARGEOUT_DEVICE void Push(int row, const ScoredClass& entry) const {
    area_[AddToCounter(ends_ + row, 1)] = KeyOf(entry);
  }

  // Merges the waiting entries of the lists that may soon be full. All threads of the block
  // call it.
  LARGEOUT_DEVICE void MakeRoom() const {
    block_.ForEachThread([&](int thread) {
      for (int row = thread; row < rows_; row += block_.size()) {
        if (NumPending(row) >= kWaiting / 2) crowded_[AddToCounter(num_crowded_, 1)] = row;
      }
    });
    const int num_crowded = *num_crowded_;
    for (int i = 0; i < num_crowded; ++i) TakeIn(crowded_[i]);
    // A barrier: no thread may push while another thread still reads crowded_.
    block_.ForEachThread([&](int thread) {
      if (thread == 0 && num_crowded > 0) *num_crowded_ = 0;
    });
  }

  // Leaves the lists sorted, and fills them up to k with entries of kNoId. All threads of the
  // block call it.
  LARGEOUT_DEVICE void Finish() const {
    for (int row = 0; row < rows_; ++row) {
      if (NumPending(row) > 0) TakeIn(row);
    }
    block_.ForEachThread([&](int thread) {
      for (int row = 0; row < rows_; ++row) {
        for (int i = kept_[row] + thread; i < k_; i += block_.size()) {
          Area(row)[i] = KeyOf({MinusInfinity(), kNoId});
        }
      }
    });
  }

  LARGEOUT_DEVICE const ScoreKey* list(int row) const { return Area(row); }
  LARGEOUT_DEVICE int size(int row) const { return kept_[row]; }

 private:
  LARGEOUT_DEVICE int Begin(int row) const { return row * (k_ + kWaiting); }
  LARGEOUT_DEVICE ScoreKey* Area(int row) const { return area_ + Begin(row); }
  LARGEOUT_DEVICE int NumPending(int row) const { return ends_[row] - Begin(row) - k_; }

  // Merges the waiting entries of a list into it. All threads read the counts before the first
  // barrier, so the last phase may change them.
  LARGEOUT_DEVICE void TakeIn(int row) const {
    const int kept = kept_[row], pending = NumPending(row);
    Stage(row, kept, pending);
    const ScoreKey* const sorted = SortScores<kWaiting>(block_, pending, new_, new_ + kWaiting);
    block_.ForEachThread([&](int thread) {
      // Keys are equal only if an id was pushed twice, which happens only for damaged input.
      for (int i = thread; i < kept; i += block_.size()) {
        Put(row, i + CountAbove(sorted, kWaiting, list_[i]), list_[i]);
      }
      for (int i = thread; i < pending; i += block_.size()) {
        Put(row, i + CountAbove(list_, kept, sorted[i] - 1), sorted[i]);
      }
      if (thread > 0) return;
      kept_[row] = kept + pending < k_ ? kept + pending : k_;
      ends_[row] = Begin(row) + k_;
    });
  }

  LARGEOUT_DEVICE void Stage(int row, int kept, int pending) const {
    const ScoreKey* const area = Area(row);
    block_.ForEachThread([&](int thread) {
      for (int i = thread; i < kept; i += block_.size()) list_[i] = area[i];
      for (int i = thread; i < kWaiting; i += block_.size()) {
        new_[i] = i < pending ? area[k_ + i] : kNoKey;
        new_[kWaiting + i] = kNoKey;
      }
    });
  }

  LARGEOUT_DEVICE void Put(int row, int place, ScoreKey key) const {
    if (place < k_) Area(row)[place] = key;
    if (place == k_ - 1) limits_[row] = EntryOf(key).score;
  }

  const Block& block_;
  const int rows_;
  const int k_;
  ScoreKey* const area_;
  // In shared memory. The arrays of fixed size come first, so one register addresses all of
  // them.
  ScoreKey* const new_;  // [2, kWaiting]: waiting entries of a list, and room to sort
  float* const limits_;
  int* const kept_;
  int* const ends_;     // end of the waiting entries, in area_
  int* const crowded_;  // lists with at least kWaiting / 2 waiting entries
  int* const num_crowded_;
  ScoreKey* const list_;  // [k], of the list that is being merged
};

}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_BEST_LISTS_H_
