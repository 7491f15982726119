// The k best of a stream of scored classes for each of some rows, kept by one block.
//
// A row's list stands in front of its area in memory, new entries wait behind it. When
// they are many, the block ranks all of them by counting, and the k best stay.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_BEST_LISTS_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_BEST_LISTS_H_

#include <cstdint>

#include "custom_ops/core/class_scan_types.h"
#include "custom_ops/cuda/block_tools.h"

namespace largeout {
namespace cuda {

inline constexpr int32_t kNoId = 2147483647;

// Whether a stands before b.
LARGEOUT_DEVICE inline bool StandsBefore(const ScoredClass& a, const ScoredClass& b) {
  return a.score > b.score || (a.score == b.score && a.id < b.id);
}

// Shared memory of BestLists.
inline int64_t BestListsSharedBytes(int64_t rows, int64_t k, int64_t waiting) {
  return (k + waiting) * static_cast<int64_t>(sizeof(ScoredClass)) + rows * 12;
}

template <class Block>
class BestLists {
 public:
  // `area` [rows, k + waiting] is in global memory, `shared` has BestListsSharedBytes.
  LARGEOUT_DEVICE BestLists(const Block& block, int rows, int64_t k, int waiting,
                            ScoredClass* area, char* shared)
      : block_(block),
        rows_(rows),
        k_(k),
        waiting_(waiting),
        area_(area),
        staged_(reinterpret_cast<ScoredClass*>(shared)),
        limits_(reinterpret_cast<float*>(staged_ + k + waiting)),
        kept_(reinterpret_cast<int*>(limits_ + rows)),
        pending_(kept_ + rows) {
    block_.ForEachThread([&](int thread) {
      for (int row = thread; row < rows_; row += block_.size()) {
        limits_[row] = MinusInfinity();
        kept_[row] = pending_[row] = 0;
      }
    });
  }

  // Scores up to this need not be offered: they are not among the best, if entries with
  // equal scores come by rising id.
  LARGEOUT_DEVICE float limit(int row) const { return limits_[row]; }

  // REQUIRES: score > -inf, and room (see MakeRoom).
  LARGEOUT_DEVICE void Push(int row, const ScoredClass& entry) const {
    Area(row)[k_ + AddToCounter(pending_ + row, 1)] = entry;
  }

  // Makes room for `count` new entries in each row. For the whole block.
  LARGEOUT_DEVICE void MakeRoom(int count) const {
    for (int row = 0; row < rows_; ++row) {
      if (pending_[row] > waiting_ - count) Rank(row);
    }
    // No thread pushes while another still looks at what waits.
    block_.ForEachThread([](int) {});
  }

  // Leaves sorted lists, filled up to k with entries of kNoId. For the whole block.
  LARGEOUT_DEVICE void Finish() const {
    MakeRoom(waiting_);
    for (int row = 0; row < rows_; ++row) {
      block_.ForEachThread([&](int thread) {
        for (int64_t i = kept_[row] + thread; i < k_; i += block_.size()) {
          Area(row)[i] = {MinusInfinity(), kNoId};
        }
      });
    }
  }

  LARGEOUT_DEVICE ScoredClass* list(int row) const { return Area(row); }
  LARGEOUT_DEVICE int size(int row) const { return kept_[row]; }

 private:
  LARGEOUT_DEVICE ScoredClass* Area(int row) const { return area_ + row * (k_ + waiting_); }

  LARGEOUT_DEVICE void Rank(int row) const {
    ScoredClass* const area = Area(row);
    const int kept = kept_[row], count = kept + pending_[row];
    block_.ForEachThread([&](int thread) {
      for (int i = thread; i < count; i += block_.size()) {
        staged_[i] = i < kept ? area[i] : area[k_ + i - kept];
      }
    });
    block_.ForEachThread([&](int thread) {
      for (int i = thread; i < count; i += block_.size()) {
        int rank = 0;
        for (int j = 0; j < count; ++j) {
          // Entries are equal where ids came twice, which they do in damaged input alone.
          rank += StandsBefore(staged_[j], staged_[i]) ||
                  (j < i && !StandsBefore(staged_[i], staged_[j]));
        }
        if (rank < k_) area[rank] = staged_[i];
      }
    });
    block_.ForEachThread([&](int thread) {
      if (thread > 0) return;
      kept_[row] = count < k_ ? count : static_cast<int>(k_);
      pending_[row] = 0;
      if (count >= k_) limits_[row] = area[k_ - 1].score;
    });
  }

  const Block& block_;
  const int rows_;
  const int64_t k_;
  const int waiting_;
  ScoredClass* const area_;
  ScoredClass* const staged_;
  float* const limits_;
  int* const kept_;
  int* const pending_;
};

}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_BEST_LISTS_H_
