#include "custom_ops/core/rows/row_merge.h"

#include <algorithm>
#include <limits>
#include <memory>
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

// Without initial values.
template <typename Id>
class Entries {
 public:
  explicit Entries(int64_t size) : entries_(new Entry<Id>[size]), size_(size) {}

  int64_t size() const { return size_; }
  Entry<Id>* data() const { return entries_.get(); }
  Entry<Id>& operator[](int64_t i) const { return entries_[i]; }

 private:
  std::unique_ptr<Entry<Id>[]> entries_;
  int64_t size_;
};

// The ids of one list after another, without a copy.
template <typename Index>
struct Lists {
  const Index* first;
  int64_t num_first;
  const Index* second;
  int64_t size;

  Index operator[](int64_t i) const { return i < num_first ? first[i] : second[i - num_first]; }

  // Calls use(id) for the ids [begin, end).
  template <class Use>
  void ForEach(int64_t begin, int64_t end, const Use& use) const {
    for (int64_t i = begin; i < std::min(end, num_first); ++i) use(first[i]);
    for (int64_t i = std::max(begin, num_first); i < end; ++i) use(second[i - num_first]);
  }
};

// Whether the ids are ascending, distinct and not negative.
template <typename Index>
bool Ascend(const Lists<Index>& ids, int64_t begin, int64_t end) {
  Index before = begin == 0 ? -1 : ids[begin - 1];
  for (int64_t i = begin; i < end; ++i) {
    if (ids[i] <= before) return false;
    before = ids[i];
  }
  return true;
}

// counts[c] becomes the sum of the counts before it. Another element follows, with the total.
void SumBefore(std::vector<int64_t>* counts) {
  int64_t total = 0;
  for (int64_t& count : *counts) total += std::exchange(count, total);
  counts->push_back(total);
}

// The ids that are not negative, in input order. kept: their number in each chunk.
template <typename Id, typename Index>
Entries<Id> KeptEntries(const Lists<Index>& ids, const Chunks& chunks,
                        std::vector<int64_t> kept) {
  SumBefore(&kept);
  Entries<Id> entries(kept.back());
  chunks.ForEach(kCyclesPerId, [&](int64_t chunk, int64_t begin, int64_t) {
    // Without a branch on the id, which the processor could not predict.
    const int64_t last = kept[chunk + 1];
    int64_t i = begin;
    for (int64_t place = kept[chunk]; place < last; ++i) {
      const Index id = ids[i];
      entries[place] = {static_cast<Id>(id), static_cast<int32_t>(i)};
      place += id >= 0;
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
  if (max_id == 0) return;  // all are equal
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
    std::swap(*entries, other);
  }
}

template <typename Id>
bool StartsSegment(const Entries<Id>& entries, int64_t i) {
  return i == 0 || entries[i].id != entries[i - 1].id;
}

template <typename Id>
MergedRows Segments(const Entries<Id>& entries, const Chunks& chunks) {
  std::vector<int64_t> starts(chunks.count(), 0);
  chunks.ForEach(kCyclesPerId, [&](int64_t chunk, int64_t begin, int64_t end) {
    int64_t count = 0;
    for (int64_t i = begin; i < end; ++i) count += StartsSegment(entries, i);
    starts[chunk] = count;
  });
  SumBefore(&starts);

  MergedRows merged;
  merged.ids.resize(starts.back());
  merged.offsets.resize(starts.back() + 1);
  merged.positions.resize(entries.size());
  merged.offsets.back() = entries.size();
  chunks.ForEach(kCyclesPerId, [&](int64_t chunk, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) merged.positions[i] = entries[i].position;
    // Without a branch on StartsSegment, as above.
    const int64_t first = starts[chunk], last = starts[chunk + 1];
    int64_t i = begin;
    for (int64_t segment = first; segment < last; ++i) {
      merged.offsets[segment] = i;
      segment += StartsSegment(entries, i);
    }
    for (int64_t segment = first; segment < last; ++segment) {
      merged.ids[segment] = entries[merged.offsets[segment]].id;
    }
  });
  return merged;
}

// The same for ids that are ascending and distinct, as those of LargeoutRowDotsGrad.
template <typename Index>
MergedRows SegmentsOfAscending(const Lists<Index>& ids, const Chunks& chunks) {
  MergedRows merged;
  merged.ids.resize(ids.size);
  merged.offsets.resize(ids.size + 1);
  merged.positions.resize(ids.size);
  merged.offsets.back() = ids.size;
  chunks.ForEach(kCyclesPerId, [&](int64_t, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) merged.ids[i] = ids[i];
    for (int64_t i = begin; i < end; ++i) merged.offsets[i] = i;
    for (int64_t i = begin; i < end; ++i) merged.positions[i] = static_cast<int32_t>(i);
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
  std::vector<int64_t> kept(chunks.count()), bits(chunks.count());
  std::vector<char> ascend(chunks.count());
  chunks.ForEach(kCyclesPerId, [&](int64_t chunk, int64_t begin, int64_t end) {
    ascend[chunk] = Ascend(lists, begin, end);
    // Without comparisons, so that the compiler can use vectors.
    uint64_t count = 0, bits_of_chunk = 0;
    lists.ForEach(begin, end, [&](Index id) {
      const uint64_t is_kept = ~static_cast<uint64_t>(int64_t{id}) >> 63;
      count += is_kept;
      bits_of_chunk |= static_cast<uint64_t>(int64_t{id}) & -is_kept;
    });
    kept[chunk] = static_cast<int64_t>(count);
    bits[chunk] = static_cast<int64_t>(bits_of_chunk);
  });
  if (std::all_of(ascend.begin(), ascend.end(), [](char yes) { return yes; })) {
    return SegmentsOfAscending(lists, chunks);
  }
  int64_t max_id = 0;  // or a number of as many bits
  for (const int64_t of_chunk : bits) max_id |= of_chunk;
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
