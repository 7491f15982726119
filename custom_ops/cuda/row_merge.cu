#include <algorithm>
#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_scan.cuh>
#include <limits>

#include "custom_ops/cuda/launch.cuh"
#include "custom_ops/cuda/memory.h"
#include "custom_ops/cuda/row_merge.h"
#include "custom_ops/cuda/row_merge_body.h"

namespace largeout {
namespace cuda {
namespace {

template <class Key>
struct Buffers {
  MergedRows merged;
  Key* keys;
  Key* sorted_keys;
  int32_t* positions;  // before the sort
  int32_t* starts;
  void* cub;
  size_t cub_bytes;
};

bool FitsKey32(int64_t num_rows) { return num_rows <= std::numeric_limits<uint32_t>::max(); }

// The number of low bits in which keys up to `number` differ. cub requires at least one.
int NumBits(int64_t number) {
  int bits = 1;
  for (; bits < 63 && (number >> bits) != 0; ++bits) {
  }
  return bits;
}

template <class Key>
Status Sort(const Buffers<Key>& to, size_t* bytes, int64_t num_rows, Stream stream) {
  return cub::DeviceRadixSort::SortPairs(
      to.cub, *bytes, to.keys, to.sorted_keys, to.positions, to.merged.positions,
      static_cast<int>(to.merged.num_ids), 0, NumBits(num_rows), stream);
}

template <class Key>
Status Sum(const Buffers<Key>& to, size_t* bytes, Stream stream) {
  return cub::DeviceScan::InclusiveSum(to.cub, *bytes, to.starts, to.merged.started,
                                       static_cast<int>(to.merged.num_ids), stream);
}

template <class Key>
Buffers<Key> Take(int64_t num_ids, int64_t num_rows, Scratch* scratch) {
  Buffers<Key> to{};
  size_t sort_bytes = 0, sum_bytes = 0;
  to.merged.num_ids = num_ids;
  // cub computes its memory if it gets none. Errors are returned again by the later call.
  Sort(to, &sort_bytes, num_rows, nullptr);
  Sum(to, &sum_bytes, nullptr);
  to.cub_bytes = std::max({sort_bytes, sum_bytes, size_t{1}});
  to.cub = scratch->Take<char>(static_cast<int64_t>(to.cub_bytes));
  to.merged.num_segments = scratch->Take<int32_t>(1);
  to.merged.ids = scratch->Take<int64_t>(num_ids);
  to.merged.offsets = scratch->Take<int32_t>(num_ids + 1);
  to.merged.positions = scratch->Take<int32_t>(num_ids);
  to.merged.started = scratch->Take<int32_t>(num_ids);
  to.keys = scratch->Take<Key>(num_ids);
  to.sorted_keys = scratch->Take<Key>(num_ids);
  to.positions = scratch->Take<int32_t>(num_ids);
  to.starts = scratch->Take<int32_t>(num_ids);
  return to;
}

template <class Key>
Status Merge(const int64_t* ids, int64_t num_rows, Buffers<Key> to, Stream stream) {
  const int64_t num_ids = to.merged.num_ids;
  Status status = ForEach(num_ids, KeysBody<Key>{ids, num_rows, to.keys, to.positions}, stream);
  if (status == kOk) status = Sort(to, &to.cub_bytes, num_rows, stream);
  if (status != kOk) return status;
  status = ForEach(num_ids, StartsBody<Key>{to.sorted_keys, num_rows, to.starts}, stream);
  if (status == kOk) status = Sum(to, &to.cub_bytes, stream);
  if (status != kOk) return status;
  return ForEach(num_ids, SegmentsBody<Key>{to.sorted_keys, num_rows, to.merged}, stream);
}

}  // namespace

int64_t MergeRowsScratchBytes(int64_t num_ids, int64_t num_rows) {
  Scratch none(nullptr);
  if (FitsKey32(num_rows)) {
    Take<uint32_t>(num_ids, num_rows, &none);
  } else {
    Take<uint64_t>(num_ids, num_rows, &none);
  }
  return none.bytes();
}

Status MergeRows(const int64_t* ids, int64_t num_ids, int64_t num_rows, void* memory,
                 MergedRows* merged, Stream stream) {
  Scratch scratch(memory);
  if (FitsKey32(num_rows)) {
    const auto to = Take<uint32_t>(num_ids, num_rows, &scratch);
    *merged = to.merged;
    if (num_ids > 0) return Merge(ids, num_rows, to, stream);
  } else {
    const auto to = Take<uint64_t>(num_ids, num_rows, &scratch);
    *merged = to.merged;
    if (num_ids > 0) return Merge(ids, num_rows, to, stream);
  }
  return FillBytes(0, sizeof(int32_t), merged->num_segments, stream);
}

}  // namespace cuda
}  // namespace largeout
