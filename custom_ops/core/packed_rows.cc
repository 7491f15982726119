#include "custom_ops/core/packed_rows.h"

#include <algorithm>
#include <limits>

#include "custom_ops/core/simd_level.h"

namespace largeout {

void PackAllRows(const ClassMatrix& matrix, const int32_t* places, const ParallelFor& parallel,
                 const PackedRows& packed) {
  parallel(packed.num_rows, 2 * matrix.dim, [&](int64_t begin, int64_t end) {
    LARGEOUT_SIMD_DISPATCH(PackRows, matrix, places, begin, end, packed);
  });
}

QueryCodes::QueryCodes(const Features& features, int64_t dim, const ParallelFor& parallel)
    : codes_(features.batch * PackedWidth(dim)), scales_(features.batch) {
  // The sum of `dim` products with codes of 127 must fit into 32 bits.
  const int64_t most = std::numeric_limits<int32_t>::max() / (128 * PackedWidth(dim));
  view_ = {codes_.data(), scales_.data(), PackedWidth(dim),
           static_cast<float>(std::clamp<int64_t>(most, 1, 32767))};
  parallel(features.batch, dim, [&](int64_t begin, int64_t end) {
    LARGEOUT_SIMD_DISPATCH(PackQueries, features.data, dim, begin, end, view_);
  });
}

}  // namespace largeout
