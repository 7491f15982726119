// Shared by both queries: the entries of an example's buckets as one sequence, and filling up
// with uniform draws.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_LSH_QUERY_ROW_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_LSH_QUERY_ROW_H_

#include <cstdint>

#include "custom_ops/core/lsh/lsh_query.h"
#include "custom_ops/core/lsh/uniform_fill.h"
#include "custom_ops/cuda/block.h"
#include "custom_ops/cuda/block_sums.h"
#include "custom_ops/cuda/met_set.h"

namespace largeout {
namespace cuda {

// A bucket that is read from `place` on, wrapping around.
struct RingBucket {
  const int32_t* ids;
  int64_t size;
  int64_t place;
};

// The shared memory of a block: one element per thread.
struct QueryShared {
  RingBucket* buckets;
  int64_t* starts;  // where each bucket starts in the sequence
  int64_t* ranks;

  static int64_t Bytes(int threads) {
    return threads * static_cast<int64_t>(sizeof(RingBucket) + 2 * sizeof(int64_t));
  }

  LARGEOUT_DEVICE QueryShared(char* memory, int threads)
      : buckets(reinterpret_cast<RingBucket*>(memory)),
        starts(reinterpret_cast<int64_t*>(buckets + threads)),
        ranks(starts + threads) {}
};

// The query of one example. All threads of the block hold the same values.
template <class Block>
class RowOfBlock {
 public:
  LARGEOUT_DEVICE RowOfBlock(const Block& block, const LshTables& tables,
                             const LshQueries& queries, const LshDraw& draw, PhiloxSeed seed,
                             int64_t row, const MetSet& met, const QueryShared& shared)
      : block_(block),
        tables_(tables),
        queries_(queries),
        draw_(draw),
        codes_(queries.codes + row * queries.num_codes),
        draws_{seed, draw.RowOfDraws(row)},
        met_(met),
        shared_(shared) {
    met_.Clear(block_);
    const int64_t* labels = queries.labels + row * queries.num_labels;
    block_.ForEachThread([&](int t) {
      for (int64_t l = t; l < queries_.num_labels; l += block_.size()) {
        if (IsClass(labels[l])) met_.Exclude(labels[l]);
      }
    });
  }

  LARGEOUT_DEVICE const QueryDraws& draws() const { return draws_; }

  LARGEOUT_DEVICE int64_t BucketSize(int64_t i) const { return BucketAt(i).size; }

  // Bucket i, starting at a random entry; starting at its first entry if it has at most
  // `longest` entries, unless `always`.
  LARGEOUT_DEVICE RingBucket BucketFrom(int64_t i, int64_t longest, bool always) const {
    const Bucket bucket = BucketAt(i);
    const bool whole = !always && bucket.size <= longest;
    return {bucket.ids, bucket.size, whole ? 0 : ScaleBits(draws_(1 + i).first, bucket.size)};
  }

  // Reads the first `longest` entries of each of the block.size() buckets in shared memory,
  // bucket after bucket. Stops after `most` entries, or when `wanted` classes are found. Calls
  // emit(r, slot) for the r-th found class. Returns the number of available entries, at most
  // `most`.
  template <class Emit>
  LARGEOUT_DEVICE int64_t TakeEntries(int64_t longest, int64_t most, int64_t wanted,
                                      const Emit& emit, int64_t* found) const {
    block_.ForEachThread([&](int t) {
      const int64_t size = shared_.buckets[t].size;
      shared_.starts[t] = size < longest ? size : longest;
    });
    int64_t total = SumBefore(block_, shared_.starts);
    if (total > most) total = most;
    for (int64_t tile = 0; tile < total && *found < wanted; tile += block_.size()) {
      const int64_t before = *found;
      *found += TakeNew(
          block_, met_, [&](int t) { return tile + t < total ? EntryAt(tile + t) : -1; },
          [&](int64_t rank, int64_t slot) { emit(before + rank, slot); }, shared_.ranks);
    }
    return total;
  }

  // Fills up ids[found], ids[found + 1], ... after num_met classes have been met. Returns how
  // many ids were drawn.
  LARGEOUT_DEVICE int64_t Complete(int64_t found, int64_t num_met, int64_t* ids) const {
    const int64_t missing = draw_.num_sampled - found;
    if (missing <= 0) return 0;
    if (draw_.fill && tables_.num_classes >= 2 * (num_met + queries_.num_labels + missing)) {
      DrawTheRest(missing, ids + found);
      return missing;
    }
    const int64_t written = draw_.fill ? ShuffleTheRest(missing, ids + found) : 0;
    block_.ForEachThread([&](int t) {
      for (int64_t i = found + written + t; i < draw_.num_sampled; i += block_.size()) {
        ids[i] = -1;
      }
    });
    return written;
  }

 private:
  LARGEOUT_DEVICE bool IsClass(int64_t id) const { return 0 <= id && id < tables_.num_classes; }

  LARGEOUT_DEVICE Bucket BucketAt(int64_t i) const {
    return BucketOfCode(tables_, i, i < queries_.num_codes ? codes_[i] : -1);
  }

  // Entry `at` of the sequence. It is in the last bucket that starts at or before `at`.
  LARGEOUT_DEVICE int64_t EntryAt(int64_t at) const {
    int first = 0, last = block_.size() - 1;
    while (first < last) {
      const int middle = last - (last - first) / 2;
      if (shared_.starts[middle] <= at) {
        first = middle;
      } else {
        last = middle - 1;
      }
    }
    const RingBucket& bucket = shared_.buckets[first];
    const int64_t place = bucket.place + at - shared_.starts[first];
    const int64_t id = bucket.ids[place < bucket.size ? place : place - bucket.size];
    return IsClass(id) ? id : -1;
  }

  // Each draw is new with a probability of at least 1/2.
  LARGEOUT_DEVICE void DrawTheRest(int64_t missing, int64_t* ids) const {
    int64_t found = 0;
    for (int64_t draw = QueryDraws::kFirstFillDraw; found < missing; draw += block_.size()) {
      const int64_t before = found;
      found += TakeNew(
          block_, met_,
          [&](int t) { return ScaleBits(draws_(draw + t).first, tables_.num_classes); },
          [&](int64_t rank, int64_t slot) {
            if (before + rank < missing) ids[before + rank] = met_.keys[slot];
          },
          shared_.ranks);
    }
  }

  // Few classes are left, so one thread runs a Fisher-Yates shuffle of them. It stores them in
  // the marks of the set, which are no longer needed and have room for them.
  LARGEOUT_DEVICE int64_t ShuffleTheRest(int64_t missing, int64_t* ids) const {
    uint32_t* rest = met_.marks;
    int64_t size = 0;
    for (int64_t tile = 0; tile < tables_.num_classes; tile += block_.size()) {
      typename Block::template PerThread<int> left(block_);
      block_.ForEachThread([&](int t) {
        left[t] = tile + t < tables_.num_classes && !met_.Contains(tile + t);
        shared_.ranks[t] = left[t];
      });
      const int64_t more = SumBefore(block_, shared_.ranks);
      block_.ForEachThread([&](int t) {
        if (left[t]) rest[size + shared_.ranks[t]] = static_cast<uint32_t>(tile + t);
      });
      size += more;
    }
    const int64_t written = missing < size ? missing : size;
    block_.ForEachThread([&](int t) {
      for (int64_t i = 0; t == 0 && i < written; ++i) {
        const uint64_t bits = draws_(QueryDraws::kFirstFillDraw + i).first;
        const int64_t other = i + ScaleBits(bits, size - i);
        const uint32_t chosen = rest[other];
        rest[other] = rest[i];
        ids[i] = chosen;
      }
    });
    return written;
  }

  const Block& block_;
  const LshTables& tables_;
  const LshQueries& queries_;
  const LshDraw& draw_;
  const int32_t* const codes_;
  const QueryDraws draws_;
  const MetSet& met_;
  const QueryShared& shared_;
};

}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_LSH_QUERY_ROW_H_
