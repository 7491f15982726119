// The thread bodies of row_merge.cu, before, between and after the sort and the prefix sum.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_ROW_MERGE_BODY_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_ROW_MERGE_BODY_H_

#include <cstdint>

#include "custom_ops/cuda/block.h"
#include "custom_ops/cuda/row_merge.h"

namespace largeout {
namespace cuda {

// The key of an id is the id itself, or num_rows, which sorts after all rows, if the id is
// invalid. Key: uint32_t or uint64_t, wide enough for num_rows.
template <class Key>
struct KeysBody {
  const int64_t* ids;
  int64_t num_rows;
  Key* keys;
  int32_t* positions;

  LARGEOUT_DEVICE void operator()(int64_t i) const {
    const int64_t id = ids[i];
    keys[i] = static_cast<Key>(id >= 0 && id < num_rows ? id : num_rows);
    positions[i] = static_cast<int32_t>(i);
  }
};

template <class Key>
LARGEOUT_DEVICE bool StartsSegment(const Key* sorted_keys, int64_t num_rows, int64_t i) {
  const Key key = sorted_keys[i];
  return key != static_cast<Key>(num_rows) && (i == 0 || sorted_keys[i - 1] != key);
}

// starts[i] = 1 if a segment starts at place i, else 0. The prefix sum numbers the segments.
template <class Key>
struct StartsBody {
  const Key* sorted_keys;
  int64_t num_rows;
  int32_t* starts;

  LARGEOUT_DEVICE void operator()(int64_t i) const {
    starts[i] = StartsSegment(sorted_keys, num_rows, i) ? 1 : 0;
  }
};

// Finds ids and offsets from merged.started.
template <class Key>
struct SegmentsBody {
  const Key* sorted_keys;
  int64_t num_rows;
  MergedRows merged;

  LARGEOUT_DEVICE void operator()(int64_t i) const {
    const auto end = static_cast<Key>(num_rows);
    const Key key = sorted_keys[i];
    const int32_t segments = merged.started[i];
    if (StartsSegment(sorted_keys, num_rows, i)) {
      merged.ids[segments - 1] = static_cast<int64_t>(key);
      merged.offsets[segments - 1] = static_cast<int32_t>(i);
    }
    // One thread finds the end: that of the last row, or the first thread if there are no rows.
    const bool last_row = key != end && (i == merged.num_ids - 1 || sorted_keys[i + 1] == end);
    if (last_row || (i == 0 && key == end)) {
      merged.offsets[segments] = static_cast<int32_t>(key == end ? 0 : i + 1);
      *merged.num_segments = segments;
    }
  }
};

}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_ROW_MERGE_BODY_H_
