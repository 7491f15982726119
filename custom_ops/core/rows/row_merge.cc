#include "custom_ops/core/rows/row_merge.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "custom_ops/core/base/counting_sort.h"

namespace largeout {
namespace {

constexpr int kMaxDigitBits = 11;
constexpr int64_t kMinChunk = 16384;
constexpr int64_t kMaxChunks = 16;
constexpr int64_t kCyclesPerId = 4;

// With ids of 32 bits, half as many bytes are moved.
template <typename Id>
struct Entry {
  Id id;
  int32_t position;
};

template <typename Id>
using Entries = std::vector<Entry<Id>>;

// The ids of one list after another, without a copy.
template <typename Index>
struct Lists {
  const Index* first;
  int64_t num_first;
  const Index* second;
  int64_t size;

  Index operator[](int64_t i) const { return i < num_first ? first[i] : second[i - num_first]; }
};

// The ids that are not negative, in input order.
template <typename Id, typename Index>
Entries<Id> KeptEntries(const Lists<Index>& ids, const Chunks& chunks,
                        std::vector<int64_t> first) {
  int64_t num_kept = 0;
  for (int64_t& count : first) num_kept += std::exchange(count, num_kept);
  Entries<Id> entries(num_kept);
  chunks.ForEach(kCyclesPerId, [&](int64_t chunk, int64_t begin, int64_t end) {
    int64_t place = first[chunk];
    for (int64_t i = begin; i < end; ++i) {
      const Index id = ids[i];
      if (id >= 0) entries[place++] = {static_cast<Id>(id), static_cast<int32_t>(i)};
    }
  });
  return entries;
}

int NumBits(int64_t id) {
  int bits = 0;
  while (bits < 63 && (id >> bits) > 0) ++bits;
  return bits;
}

// Chunks for several threads. They depend only on the number of ids.
Chunks ChunksOf(int64_t num_ids, const ParallelFor& parallel) {
  return {num_ids, std::clamp(num_ids / kMinChunk, int64_t{1}, kMaxChunks), parallel};
}

// A least-significant-digit radix sort. The digits have about the same number of bits: fewer
// buckets are faster, because more of them are in the cache.
template <typename Id>
void Sort(int64_t max_id, const Chunks& chunks, Entries<Id>* entries) {
  const auto by_id = [](const Entry<Id>& a, const Entry<Id>& b) { return a.id < b.id; };
  // Gradients of LargeoutRowDots are already sorted.
  if (std::is_sorted(entries->begin(), entries->end(), by_id)) return;
  const int bits = NumBits(max_id);
  const int num_digits = (bits + kMaxDigitBits - 1) / kMaxDigitBits;
  const int digit_bits = (bits + num_digits - 1) / num_digits;
  const int64_t num_buckets = int64_t{1} << digit_bits;
  Entries<Id> other(entries->size());
  CountingSort sort(chunks, num_buckets);
  for (int shift = 0; shift < bits; shift += digit_bits) {
    const Entry<Id>* from = entries->data();
    const auto digit = [&](int64_t i) {
      return static_cast<int64_t>(from[i].id >> shift) & (num_buckets - 1);
    };
    sort.Count(digit);
    sort.Place(digit, [&](int64_t i, int32_t place) { other[place] = from[i]; });
    entries->swap(other);
  }
}

template <typename Id>
bool StartsSegment(const Entries<Id>& entries, int64_t i) {
  return i == 0 || entries[i].id != entries[i - 1].id;
}

template <typename Id>
MergedRows Segments(const Entries<Id>& entries, const Chunks& chunks) {
  std::vector<int64_t> first(chunks.count(), 0);
  chunks.ForEach(kCyclesPerId, [&](int64_t chunk, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) first[chunk] += StartsSegment(entries, i);
  });
  int64_t num_segments = 0;
  for (int64_t& count : first) num_segments += std::exchange(count, num_segments);

  MergedRows merged;
  merged.ids.resize(num_segments);
  merged.offsets.resize(num_segments + 1);
  merged.positions.resize(entries.size());
  merged.offsets.back() = static_cast<int64_t>(entries.size());
  chunks.ForEach(kCyclesPerId, [&](int64_t chunk, int64_t begin, int64_t end) {
    int64_t segment = first[chunk];
    for (int64_t i = begin; i < end; ++i) {
      merged.positions[i] = entries[i].position;
      if (!StartsSegment(entries, i)) continue;
      merged.ids[segment] = entries[i].id;
      merged.offsets[segment++] = i;
    }
  });
  return merged;
}

template <typename Id, typename Index>
MergedRows Merge(const Lists<Index>& ids, const Chunks& chunks, std::vector<int64_t> kept,
                 int64_t max_id, const ParallelFor& parallel) {
  Entries<Id> entries = KeptEntries<Id>(ids, chunks, std::move(kept));
  const Chunks of_entries = ChunksOf(static_cast<int64_t>(entries.size()), parallel);
  Sort(max_id, of_entries, &entries);
  return Segments(entries, of_entries);
}

}  // namespace

template <typename Index>
MergedRows MergeRows(const Index* ids, int64_t num_ids, const ParallelFor& parallel_for,
                     const Index* more_ids, int64_t num_more) {
  const Lists<Index> lists{ids, num_ids, more_ids, num_ids + num_more};
  const Chunks chunks = ChunksOf(lists.size, parallel_for);
  std::vector<int64_t> kept(chunks.count(), 0), largest(chunks.count(), 0);
  chunks.ForEach(kCyclesPerId, [&](int64_t chunk, int64_t begin, int64_t end) {
    int64_t count = 0, max_id = 0;
    for (int64_t i = begin; i < end; ++i) {
      const int64_t id = lists[i];
      count += id >= 0;
      max_id = std::max(max_id, id);
    }
    kept[chunk] = count;
    largest[chunk] = max_id;
  });
  const int64_t max_id = *std::max_element(largest.begin(), largest.end());
  return max_id <= std::numeric_limits<uint32_t>::max()
             ? Merge<uint32_t>(lists, chunks, std::move(kept), max_id, parallel_for)
             : Merge<int64_t>(lists, chunks, std::move(kept), max_id, parallel_for);
}

template <typename Index>
int64_t FindIdOutOfRange(const Index* ids, int64_t num_ids, int64_t num_rows) {
  for (int64_t i = 0; i < num_ids; ++i) {
    if (ids[i] < 0 || ids[i] >= num_rows) return i;
  }
  return -1;
}

template MergedRows MergeRows(const int32_t*, int64_t, const ParallelFor&, const int32_t*,
                              int64_t);
template MergedRows MergeRows(const int64_t*, int64_t, const ParallelFor&, const int64_t*,
                              int64_t);
template int64_t FindIdOutOfRange(const int32_t*, int64_t, int64_t);
template int64_t FindIdOutOfRange(const int64_t*, int64_t, int64_t);

}  // namespace largeout
