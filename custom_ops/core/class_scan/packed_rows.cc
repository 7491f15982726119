#include "custom_ops/core/class_scan/packed_rows.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "custom_ops/core/base/simd_level.h"

namespace largeout {
namespace {

constexpr int64_t kHighestCode = kCodeOfZero + kMostOfRow;
static_assert(2 * kHighestCode * kMostOfQuery <= std::numeric_limits<int16_t>::max(),
              "two products are summed in 16 bits");

}  // namespace

void PackAllRows(const ClassMatrix& matrix, const int32_t* ids, const ParallelFor& parallel,
                 const PackedRows& packed) {
  parallel(packed.num_groups(), 2 * kGroupRows * matrix.dim, [&](int64_t begin, int64_t end) {
    std::vector<float> wide(matrix.bfloat16_rows == nullptr ? 0 : kGroupRows * matrix.dim);
    float* const scratch = wide.empty() ? nullptr : wide.data();
    LARGEOUT_SIMD_DISPATCH(PackGroups, matrix, ids, begin, end, packed, scratch);
  });
}

int64_t MostOfQuery(int64_t width) {
  const int64_t most =
      std::numeric_limits<int32_t>::max() / (kHighestCode * std::max<int64_t>(width, 1));
  return std::clamp<int64_t>(most, 1, kMostOfQuery);
}

QueryCodes::QueryCodes(const Features& features, int64_t dim, const ParallelFor& parallel)
    : codes_(features.batch * PackedWidth(dim)),
      scales_(features.batch),
      norms_(features.batch),
      errors_(features.batch),
      sums_(features.batch) {
  view_ = {codes_.data(),
           scales_.data(),
           sums_.data(),
           norms_.data(),
           errors_.data(),
           PackedWidth(dim),
           static_cast<float>(MostOfQuery(PackedWidth(dim)))};
  parallel(features.batch, dim, [&](int64_t begin, int64_t end) {
    LARGEOUT_SIMD_DISPATCH(PackQueries, features.data, dim, begin, end, view_);
  });
}

bool QueryCodes::AreBounded() const {
  return std::all_of(norms_.begin(), norms_.end(),
                     [](float norm) { return norm < kMostBounded; });
}

}  // namespace largeout
