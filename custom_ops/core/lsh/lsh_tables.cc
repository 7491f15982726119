#include "custom_ops/core/lsh/lsh_tables.h"

#include <algorithm>
#include <vector>

#include "custom_ops/core/base/bfloat16_rows.h"
#include "custom_ops/core/base/counting_sort.h"

namespace largeout {
namespace {

constexpr int64_t kMinChunk = 8192;
constexpr int64_t kMaxChunks = 16;
constexpr int64_t kWidenedRows = 65536;  // rows that are float32 at a time

// Each chunk has num_buckets counters. All chunks together have at most num_rows / 2.
int64_t NumChunks(int64_t num_buckets, int64_t num_rows) {
  return std::clamp(std::min(num_rows / (2 * num_buckets), num_rows / kMinChunk), int64_t{1},
                    kMaxChunks);
}

}  // namespace

void SortIntoBuckets(int64_t num_tables, int64_t num_buckets, int64_t num_rows,
                     const ParallelFor& parallel, int32_t* offsets, int32_t* codes_to_ids) {
  // All threads sort one table at a time, so that only one table needs scratch.
  CountingSort sort(Chunks(num_rows, NumChunks(num_buckets, num_rows), parallel), num_buckets);
  std::vector<int32_t> codes(num_rows);
  for (int64_t table = 0; table < num_tables; ++table) {
    int32_t* ids = codes_to_ids + table * num_rows;
    sort.Count([&](int64_t row) { return codes[row] = ids[row]; });
    sort.WriteOffsets(offsets + table * (num_buckets + 1));
    sort.Place([&](int64_t row) { return codes[row]; },
               [&](int64_t row, int32_t place) { ids[place] = static_cast<int32_t>(row); });
  }
}

void BuildLshTables(const HashFamily& family, const float* rows, int64_t num_rows,
                    const ParallelFor& parallel, int32_t* offsets, int32_t* ids) {
  HashRows(family, rows, num_rows, num_rows, parallel, ids);
  SortIntoBuckets(family.num_tables, int64_t{1} << family.bits, num_rows, parallel, offsets,
                  ids);
}

void BuildLshTables(const HashFamily& family, const uint16_t* bfloat16_rows, int64_t num_rows,
                    const ParallelFor& parallel, int32_t* offsets, int32_t* ids) {
  const int64_t dim = family.dim;
  std::vector<float> rows(std::min(num_rows, kWidenedRows) * dim);
  for (int64_t first = 0; first < num_rows; first += kWidenedRows) {
    const int64_t size = std::min(kWidenedRows, num_rows - first);
    parallel(size, dim, [&](int64_t begin, int64_t end) {
      WidenRow(bfloat16_rows + (first + begin) * dim, (end - begin) * dim,
               rows.data() + begin * dim);
    });
    HashRows(family, rows.data(), size, num_rows, parallel, ids + first);
  }
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
