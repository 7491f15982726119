// Groups the positions of equal ids, so that an update processes each row once.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_ROWS_ROW_MERGE_H_
#define LARGEOUT_CUSTOM_OPS_CORE_ROWS_ROW_MERGE_H_

#include <cstdint>
#include <vector>

#include "custom_ops/core/base/parallel.h"

namespace largeout {

// Segment s belongs to row ids[s]. Its gradients are at positions[offsets[s]] ..
// positions[offsets[s + 1] - 1] of the input, in input order.
struct MergedRows {
  std::vector<int64_t> ids;        // unique, ascending
  std::vector<int64_t> offsets;    // ids.size() + 1
  std::vector<int32_t> positions;  // one per id that is not negative

  int64_t size() const { return static_cast<int64_t>(ids.size()); }
};

// Sorts by id (stable radix sort; memory O(num_ids), independent of the ids). Negative ids are
// skipped. The positions of `more_ids`, a second list, follow those of `ids`. The result does
// not depend on how `parallel_for` splits the work. REQUIRES: num_ids + num_more < 2^31.
template <typename Index>
MergedRows MergeRows(const Index* ids, int64_t num_ids, const ParallelFor& parallel_for,
                     const Index* more_ids = nullptr, int64_t num_more = 0);

// The position of the first id outside [0, num_rows), or -1 if all ids are inside.
template <typename Index>
int64_t FindIdOutOfRange(const Index* ids, int64_t num_ids, int64_t num_rows);

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_ROWS_ROW_MERGE_H_
