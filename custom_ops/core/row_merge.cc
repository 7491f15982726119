#include "custom_ops/core/row_merge.h"

#include <algorithm>
#include <utility>

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

// Calls work(chunk, begin, end) for fixed chunks of [0, total): what a chunk
// is depends on `total` alone.
class Chunks {
 public:
  Chunks(int64_t total, const ParallelFor& parallel_for)
      : total_(total),
        count_(std::clamp(total / kMinChunk, int64_t{1}, kMaxChunks)),
        parallel_for_(parallel_for) {}

  int64_t count() const { return count_; }

  template <typename Work>
  void ForEach(const Work& work) const {
    const auto run = [&](int64_t first, int64_t last) {
      for (int64_t chunk = first; chunk < last; ++chunk) {
        work(chunk, total_ * chunk / count_, total_ * (chunk + 1) / count_);
      }
    };
    if (count_ == 1) return run(0, 1);
    parallel_for_(count_, total_ / count_ * kCyclesPerId, run);
  }

 private:
  const int64_t total_;
  const int64_t count_;
  const ParallelFor& parallel_for_;
};

int64_t Digit(const Entry& entry, int shift) { return (entry.id >> shift) & (kNumDigits - 1); }

// One stable pass of a least-significant-digit radix sort.
void SortByDigit(const std::vector<Entry>& from, int shift, const Chunks& chunks,
                 std::vector<int64_t>& counts, std::vector<Entry>& to) {
  std::fill(counts.begin(), counts.end(), 0);
  chunks.ForEach([&](int64_t chunk, int64_t begin, int64_t end) {
    int64_t* count = &counts[chunk * kNumDigits];
    for (int64_t i = begin; i < end; ++i) ++count[Digit(from[i], shift)];
  });
  int64_t start = 0;
  for (int64_t digit = 0; digit < kNumDigits; ++digit) {
    for (int64_t chunk = 0; chunk < chunks.count(); ++chunk) {
      start += std::exchange(counts[chunk * kNumDigits + digit], start);
    }
  }
  chunks.ForEach([&](int64_t chunk, int64_t begin, int64_t end) {
    int64_t* next = &counts[chunk * kNumDigits];
    for (int64_t i = begin; i < end; ++i) to[next[Digit(from[i], shift)]++] = from[i];
  });
}

template <typename Index>
std::vector<Entry> SortedEntries(const Index* ids, int64_t num_ids, const Chunks& chunks) {
  std::vector<Entry> entries(num_ids), other(num_ids);
  std::vector<int64_t> largest(chunks.count(), 0);
  chunks.ForEach([&](int64_t chunk, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      entries[i] = {static_cast<int64_t>(ids[i]), static_cast<int32_t>(i)};
      largest[chunk] = std::max(largest[chunk], entries[i].id);
    }
  });
  // Gradients of LargeoutRowDots come sorted.
  const auto by_id = [](const Entry& a, const Entry& b) { return a.id < b.id; };
  if (std::is_sorted(entries.begin(), entries.end(), by_id)) return entries;
  const int64_t max_id = *std::max_element(largest.begin(), largest.end());
  std::vector<int64_t> counts(chunks.count() * kNumDigits);
  for (int shift = 0; shift < 63 && (max_id >> shift) > 0; shift += kDigitBits) {
    SortByDigit(entries, shift, chunks, counts, other);
    entries.swap(other);
  }
  return entries;
}

bool StartsSegment(const std::vector<Entry>& entries, int64_t i) {
  return i == 0 || entries[i].id != entries[i - 1].id;
}

MergedRows Segments(const std::vector<Entry>& entries, const Chunks& chunks) {
  std::vector<int64_t> first(chunks.count(), 0);
  chunks.ForEach([&](int64_t chunk, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) first[chunk] += StartsSegment(entries, i);
  });
  int64_t num_segments = 0;
  for (int64_t& count : first) num_segments += std::exchange(count, num_segments);

  MergedRows merged;
  merged.ids.resize(num_segments);
  merged.offsets.resize(num_segments + 1);
  merged.positions.resize(entries.size());
  merged.offsets.back() = static_cast<int64_t>(entries.size());
  chunks.ForEach([&](int64_t chunk, int64_t begin, int64_t end) {
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
  const Chunks chunks(num_ids, parallel_for);
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
