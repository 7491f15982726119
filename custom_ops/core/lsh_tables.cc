#include "custom_ops/core/lsh_tables.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace largeout {
namespace {

// Sorts one table at a time, all threads together: the scratch is one table's.
class BucketSort {
 public:
  BucketSort(int64_t num_buckets, int64_t num_rows, const ParallelFor& parallel)
      : num_buckets_(num_buckets),
        num_rows_(num_rows),
        // Counts of a chunk are num_buckets integers: no more than num_rows / 2 of them.
        num_chunks_(std::clamp(std::min(num_rows / (2 * num_buckets), num_rows / kMinChunk),
                               int64_t{1}, kMaxChunks)),
        parallel_(parallel),
        codes_(num_rows),
        next_(num_chunks_ * num_buckets) {}

  void Sort(int32_t* offsets, int32_t* codes_to_ids) {
    TakeCodes(codes_to_ids);
    MakeOffsets(offsets);
    Scatter(codes_to_ids);
  }

 private:
  static constexpr int64_t kMinChunk = 8192;
  static constexpr int64_t kMaxChunks = 16;

  template <class Work>
  void ForEachChunk(int64_t cycles_per_row, const Work& work) {
    const auto run = [&](int64_t first, int64_t last) {
      for (int64_t chunk = first; chunk < last; ++chunk) {
        work(next_.data() + chunk * num_buckets_, num_rows_ * chunk / num_chunks_,
             num_rows_ * (chunk + 1) / num_chunks_);
      }
    };
    parallel_(num_chunks_, num_rows_ / num_chunks_ * cycles_per_row, run);
  }

  void TakeCodes(const int32_t* codes) {
    ForEachChunk(3, [&](int32_t* counts, int64_t begin, int64_t end) {
      std::fill(counts, counts + num_buckets_, 0);
      for (int64_t row = begin; row < end; ++row) {
        codes_[row] = codes[row];
        ++counts[codes[row]];
      }
    });
  }

  // Turns the counts of each chunk into the places of its next row in each bucket.
  void MakeOffsets(int32_t* offsets) {
    int32_t start = 0;
    for (int64_t bucket = 0; bucket < num_buckets_; ++bucket) {
      offsets[bucket] = start;
      for (int64_t chunk = 0; chunk < num_chunks_; ++chunk) {
        start += std::exchange(next_[chunk * num_buckets_ + bucket], start);
      }
    }
    offsets[num_buckets_] = start;
  }

  void Scatter(int32_t* ids) {
    ForEachChunk(6, [&](int32_t* next, int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        ids[next[codes_[row]]++] = static_cast<int32_t>(row);
      }
    });
  }

  const int64_t num_buckets_;
  const int64_t num_rows_;
  const int64_t num_chunks_;
  const ParallelFor& parallel_;
  std::vector<int32_t> codes_;  // [num_rows]
  std::vector<int32_t> next_;   // [num_chunks, num_buckets]
};

}  // namespace

void SortIntoBuckets(int64_t num_tables, int64_t num_buckets, int64_t num_rows,
                     const ParallelFor& parallel, int32_t* offsets, int32_t* codes_to_ids) {
  BucketSort sort(num_buckets, num_rows, parallel);
  for (int64_t table = 0; table < num_tables; ++table) {
    sort.Sort(offsets + table * (num_buckets + 1), codes_to_ids + table * num_rows);
  }
}

void BuildLshTables(const HashFamily& family, const float* rows, int64_t num_rows,
                    const ParallelFor& parallel, int32_t* offsets, int32_t* ids) {
  HashRows(family, rows, num_rows, num_rows, parallel, ids);
  SortIntoBuckets(family.num_tables, int64_t{1} << family.bits, num_rows, parallel, offsets,
                  ids);
}

int64_t CountFreshEntries(const LshTables& tables, const int32_t* codes, const int64_t* row_ids,
                          int64_t num_rows) {
  int64_t fresh = 0;
  for (int64_t i = 0; i < num_rows * tables.num_tables; ++i) {
    fresh += Holds(BucketOfCode(tables, i, codes[i]), row_ids[i / tables.num_tables]);
  }
  return fresh;
}

}  // namespace largeout
