// A stable sort of items into buckets, by counting.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_BASE_COUNTING_SORT_H_
#define LARGEOUT_CUSTOM_OPS_CORE_BASE_COUNTING_SORT_H_

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "custom_ops/core/base/parallel.h"

namespace largeout {

// Consecutive ranges of [0, total) that depend only on `total` and `count`, for several
// threads.
class Chunks {
 public:
  // A single chunk, for the calling thread.
  explicit Chunks(int64_t total) : total_(total) {}
  // `parallel` must outlive the chunks. REQUIRES: count >= 1.
  Chunks(int64_t total, int64_t count, const ParallelFor& parallel)
      : total_(total), count_(count), parallel_(&parallel) {}

  int64_t total() const { return total_; }
  int64_t count() const { return count_; }

  // Calls work(chunk, begin, end) for each chunk.
  template <class Work>
  void ForEach(int64_t cycles_per_item, const Work& work) const {
    const auto run = [&](int64_t first, int64_t last) {
      for (int64_t chunk = first; chunk < last; ++chunk) {
        work(chunk, total_ * chunk / count_, total_ * (chunk + 1) / count_);
      }
    };
    if (count_ == 1) return run(0, 1);
    (*parallel_)(count_, total_ / count_ * cycles_per_item, run);
  }

 private:
  int64_t total_;
  int64_t count_ = 1;
  const ParallelFor* parallel_ = nullptr;
};

// Sorts items 0, 1, ..., chunks.total() - 1. Call Count first, then Place any number of times.
// Memory: 4 bytes per chunk and bucket. REQUIRES: fewer than 2^31 items.
class CountingSort {
 public:
  CountingSort(const Chunks& chunks, int64_t num_buckets)
      : chunks_(chunks), num_buckets_(num_buckets), next_(chunks.count() * num_buckets) {}

  // Calls bucket_of(item), which must be in [0, num_buckets), once per item.
  template <class BucketOf>
  void Count(const BucketOf& bucket_of) {
    chunks_.ForEach(kCountCycles, [&](int64_t chunk, int64_t begin, int64_t end) {
      int32_t* counts = next(chunk);
      std::fill_n(counts, num_buckets_, 0);
      for (int64_t item = begin; item < end; ++item) ++counts[bucket_of(item)];
    });
    int32_t start = 0;
    for (int64_t bucket = 0; bucket < num_buckets_; ++bucket) {
      for (int64_t chunk = 0; chunk < chunks_.count(); ++chunk) {
        start += std::exchange(next(chunk)[bucket], start);
      }
    }
  }

  // Writes offsets [num_buckets + 1]: bucket b has places offsets[b] to offsets[b + 1] - 1.
  // Call it between Count and Place.
  template <class Offset>
  void WriteOffsets(Offset* offsets) const {
    std::copy_n(next_.begin(), num_buckets_, offsets);
    offsets[num_buckets_] = static_cast<Offset>(chunks_.total());
  }

  // Calls put(item, place) for each item, with the buckets that Count found. Items of the same
  // bucket get increasing places.
  template <class BucketOf, class Put>
  void Place(const BucketOf& bucket_of, const Put& put) {
    chunks_.ForEach(kPlaceCycles, [&](int64_t chunk, int64_t begin, int64_t end) {
      int32_t* places = next(chunk);
      for (int64_t item = begin; item < end; ++item) put(item, places[bucket_of(item)]++);
    });
  }

 private:
  static constexpr int64_t kCountCycles = 3, kPlaceCycles = 6;

  int32_t* next(int64_t chunk) { return next_.data() + chunk * num_buckets_; }

  const Chunks chunks_;
  const int64_t num_buckets_;
  std::vector<int32_t> next_;  // [chunks, num_buckets]: counts, then the next places
};

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_BASE_COUNTING_SORT_H_
