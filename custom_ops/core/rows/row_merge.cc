#include "custom_ops/core/rows/row_merge.h"

#include <algorithm>
#include <utility>

#include "custom_ops/core/base/counting_sort.h"

namespace largeout {
namespace {

constexpr int kDigitBits = 11;
constexpr int64_t kNumDigits = int64_t{1} << kDigitBits;
constexpr int64_t kMinChunk = 16384;
constexpr int64_t kMaxChunks = 16;
constexpr int64_t kCyclesPerId = 4;

struct Entry {
  int64_t id;
  int32_t position;
};

// A least-significant-digit radix sort.
template <typename Index>
std::vector<Entry> SortedEntries(const Index* ids, int64_t num_ids, const Chunks& chunks) {
  std::vector<Entry> entries(num_ids), other(num_ids);
  std::vector<int64_t> largest(chunks.count(), 0);
  chunks.ForEach(kCyclesPerId, [&](int64_t chunk, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      entries[i] = {static_cast<int64_t>(ids[i]), static_cast<int32_t>(i)};
      largest[chunk] = std::max(largest[chunk], entries[i].id);
    }
  });
  // Gradients of LargeoutRowDots are already sorted.
  const auto by_id = [](const Entry& a, const Entry& b) { return a.id < b.id; };
  if (std::is_sorted(entries.begin(), entries.end(), by_id)) return entries;
  const int64_t max_id = *std::max_element(largest.begin(), largest.end());
  CountingSort sort(chunks, kNumDigits);
  for (int shift = 0; shift < 63 && (max_id >> shift) > 0; shift += kDigitBits) {
    const auto digit = [&](int64_t i) { return (entries[i].id >> shift) & (kNumDigits - 1); };
    sort.Count(digit);
    sort.Place(digit, [&](int64_t i, int32_t place) { other[place] = entries[i]; });
    entries.swap(other);
  }
  return entries;
}

bool StartsSegment(const std::vector<Entry>& entries, int64_t i) {
  return i == 0 || entries[i].id != entries[i - 1].id;
}

MergedRows Segments(const std::vector<Entry>& entries, const Chunks& chunks) {
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

}  // namespace

template <typename Index>
MergedRows MergeRows(const Index* ids, int64_t num_ids, const ParallelFor& parallel_for) {
  const int64_t num_chunks = std::clamp(num_ids / kMinChunk, int64_t{1}, kMaxChunks);
  const Chunks chunks(num_ids, num_chunks, parallel_for);
  return Segments(SortedEntries(ids, num_ids, chunks), chunks);
}

template <typename Index>
int64_t FindIdOutOfRange(const Index* ids, int64_t num_ids, int64_t num_rows) {
  for (int64_t i = 0; i < num_ids; ++i) {
    if (ids[i] < 0 || ids[i] >= num_rows) return i;
  }
  return -1;
}

template MergedRows MergeRows(const int32_t*, int64_t, const ParallelFor&);
template MergedRows MergeRows(const int64_t*, int64_t, const ParallelFor&);
template int64_t FindIdOutOfRange(const int32_t*, int64_t, int64_t);
template int64_t FindIdOutOfRange(const int64_t*, int64_t, int64_t);

}  // namespace largeout
