// Hash tables over the rows of a matrix, as CSR arrays of fixed shape: bucket c
// of table t holds ids[t, offsets[t, c]] .. ids[t, offsets[t, c + 1] - 1].

#ifndef LARGEOUT_CUSTOM_OPS_CORE_LSH_LSH_TABLES_H_
#define LARGEOUT_CUSTOM_OPS_CORE_LSH_LSH_TABLES_H_

#include <cstdint>

#include "custom_ops/core/base/host_device.h"
#include "custom_ops/core/base/parallel.h"
#include "custom_ops/core/lsh/lsh_hash.h"

namespace largeout {

struct LshTables {
  const int32_t* offsets;  // [num_tables, num_buckets + 1]
  const int32_t* ids;      // [num_tables, num_classes]
  int64_t num_tables;
  int64_t num_buckets;
  int64_t num_classes;
};

struct Bucket {
  const int32_t* ids;  // increasing
  int64_t size;
};

// Tables may come from a damaged file: a bucket with invalid bounds is treated as empty.
// REQUIRES: 0 <= table < num_tables, 0 <= code < num_buckets.
LARGEOUT_HOST_DEVICE inline Bucket BucketOf(const LshTables& tables, int64_t table,
                                            int64_t code) {
  const int32_t* offsets = tables.offsets + table * (tables.num_buckets + 1) + code;
  const int64_t begin = offsets[0], end = offsets[1];
  if (begin < 0 || end < begin || end > tables.num_classes) return {tables.ids, 0};
  return {tables.ids + table * tables.num_classes + begin, end - begin};
}

// The bucket of code i of a query, in table i % num_tables; empty if the code is out of range.
LARGEOUT_HOST_DEVICE inline Bucket BucketOfCode(const LshTables& tables, int64_t i,
                                                int64_t code) {
  if (code < 0 || code >= tables.num_buckets) return {tables.ids, 0};
  return BucketOf(tables, i % tables.num_tables, code);
}

// Whether the id is in the bucket. O(log of its size).
LARGEOUT_HOST_DEVICE inline bool Holds(const Bucket& bucket, int64_t id) {
  int64_t first = 0, last = bucket.size;
  while (first < last) {
    const int64_t middle = first + (last - first) / 2;
    if (bucket.ids[middle] < id) {
      first = middle + 1;
    } else {
      last = middle;
    }
  }
  return first < bucket.size && bucket.ids[first] == id;
}

// Sorts the rows into the buckets of their codes, by a stable counting sort: the ids of a
// bucket increase, on any number of threads. codes_to_ids [num_tables, num_rows]: on input, the
// code of each row in each table; on output, the ids. offsets [num_tables, num_buckets + 1] is
// written. Needs 1.5 num_rows integers of scratch. REQUIRES: codes in [0, num_buckets),
// num_rows < 2^31.
void SortIntoBuckets(int64_t num_tables, int64_t num_buckets, int64_t num_rows,
                     const ParallelFor& parallel, int32_t* offsets, int32_t* codes_to_ids);

// Hashes all rows [num_rows, family.dim] and sorts them into the tables. The codes are written
// where the ids will be, so it needs no more memory than SortIntoBuckets.
void BuildLshTables(const HashFamily& family, const float* rows, int64_t num_rows,
                    const ParallelFor& parallel, int32_t* offsets, int32_t* ids);

// The same tables as for equal float32 rows. Blocks of rows are widened to float32 and hashed.
void BuildLshTables(const HashFamily& family, const uint16_t* bfloat16_rows, int64_t num_rows,
                    const ParallelFor& parallel, int32_t* offsets, int32_t* ids);

// Counts the entries (table, id of row i) that are in the bucket of the row's current code:
// codes [num_rows, num_tables], row_ids [num_rows]. Codes and ids out of range are not counted.
// O(num_rows num_tables log(bucket size)).
int64_t CountFreshEntries(const LshTables& tables, const int32_t* codes, const int64_t* row_ids,
                          int64_t num_rows);

// count / total, or 1 if `total` is 0.
LARGEOUT_HOST_DEVICE inline float ShareOf(int64_t count, int64_t total) {
  return total == 0 ? 1.0f : static_cast<float>(count) / static_cast<float>(total);
}

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_LSH_LSH_TABLES_H_
