#include <algorithm>
#include <cub/device/device_radix_sort.cuh>

#include "custom_ops/cuda/launch.cuh"
#include "custom_ops/cuda/lsh_hash.h"
#include "custom_ops/cuda/lsh_tables.h"
#include "custom_ops/cuda/lsh_tables_body.h"
#include "custom_ops/cuda/memory.h"

namespace largeout {
namespace cuda {
namespace {

// Sorts one table at a time. The codes of table t are stored where the ids of table t + 1 will
// be, and those of the last table in `last_codes`. So no codes are overwritten before they are
// sorted.
struct BucketSort {
  BucketSort(const HashFamily& family, int64_t num_rows, Scratch* scratch)
      : num_rows(num_rows),
        bits(family.bits),
        last_codes(scratch->Take<int32_t>(num_rows)),
        sorted(scratch->Take<uint32_t>(num_rows)),
        rows(scratch->Take<int32_t>(num_rows)),
        hashing(scratch->Take<char>(HashScratchBytes(family))) {
    // cub computes its memory if it gets none. Errors are returned again by the later call.
    Sort(nullptr, nullptr, nullptr);
    cub_bytes = std::max(cub_bytes, size_t{1});
    cub_memory = scratch->Take<char>(static_cast<int64_t>(cub_bytes));
  }

  Status Sort(const int32_t* codes, int32_t* ids, Stream stream) {
    return cub::DeviceRadixSort::SortPairs(
        cub_memory, cub_bytes, reinterpret_cast<const uint32_t*>(codes), sorted, rows, ids,
        static_cast<int>(num_rows), 0, bits, stream);
  }

  Status SortTable(const int32_t* codes, int32_t* offsets, int32_t* ids, Stream stream) {
    const Status status = Sort(codes, ids, stream);
    if (status != kOk) return status;
    const int64_t num_buckets = int64_t{1} << bits;
    return ForEach(num_buckets + 1, FindOffsets{sorted, num_rows, offsets}, stream);
  }

  const int64_t num_rows;
  const int bits;
  int32_t* const last_codes;
  uint32_t* const sorted;
  int32_t* const rows;
  char* const hashing;
  void* cub_memory = nullptr;
  size_t cub_bytes = 0;
};

}  // namespace

int64_t BuildLshTablesScratchBytes(const HashFamily& family, int64_t num_rows) {
  Scratch scratch(nullptr);
  BucketSort sort(family, num_rows, &scratch);
  return scratch.bytes();
}

Status BuildLshTables(const HashFamily& family, const float* rows, int64_t num_rows,
                      int32_t* offsets, int32_t* ids, void* scratch, Stream stream) {
  Scratch parts(scratch);
  BucketSort sort(family, num_rows, &parts);
  const HashCodes codes{ids + num_rows, 1, num_rows, sort.last_codes};
  Status status = HashRows(family, rows, num_rows, codes, sort.hashing, stream);
  if (status == kOk) status = ForEach(num_rows, NumberRows{sort.rows}, stream);
  const int64_t num_offsets = (int64_t{1} << family.bits) + 1;
  for (int64_t table = 0; status == kOk && table < family.num_tables; ++table) {
    int32_t* const ids_of_table = ids + table * num_rows;
    const bool last = table + 1 == family.num_tables;
    status = sort.SortTable(last ? sort.last_codes : ids_of_table + num_rows,
                            offsets + table * num_offsets, ids_of_table, stream);
  }
  return status;
}

Status FreshShare(const LshTables& tables, const int32_t* codes, const int64_t* row_ids,
                  int64_t num_rows, float* share, Stream stream) {
  return ForEachBlock(1, kFreshShareThreads, FindFreshShare::kSharedBytes,
                      FindFreshShare{tables, codes, row_ids, num_rows, share}, stream);
}

}  // namespace cuda
}  // namespace largeout
