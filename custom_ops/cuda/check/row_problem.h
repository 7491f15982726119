// Sizes and ids for the checks of row merges and row updates, and merges for both sides.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_CHECK_ROW_PROBLEM_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_CHECK_ROW_PROBLEM_H_

#include <random>
#include <string>
#include <vector>

#include "custom_ops/core/rows/row_merge.h"
#include "custom_ops/cuda/check/check.h"
#include "custom_ops/cuda/row_merge.h"

namespace largeout {
namespace cuda {
namespace check {

struct Size {
  int64_t num_rows, num_ids, dim;
};

// Empty, one, sizes that no block divides, all ids equal, more ids than rows, rows with one and
// with many runs of gradients.
inline const Size kSizes[] = {{5, 0, 4},     {1, 1, 1},         {1, 1000, 7},
                              {9, 100, 17},  {300, 99, 64},     {70, 1025, 127},
                              {12, 41, 300}, {8000, 4099, 128}, {3, 20011, 33},
                              {2, 128, 4},   {40, 3000, 129}};

inline std::string Text(const Size& size) {
  return Sizes({{"rows", size.num_rows}, {"ids", size.num_ids}, {"dim", size.dim}});
}

// Some ids may be invalid: the GPU skips them, and the CPU does not accept them.
inline std::vector<int64_t> RandomIds(const Size& size, bool with_bad_ids) {
  std::mt19937 random(3);
  std::vector<int64_t> ids(size.num_ids);
  for (int64_t& id : ids) {
    id = static_cast<int64_t>(random() % size.num_rows);
    if (with_bad_ids && random() % 8 == 0) id = random() % 2 == 0 ? -1 - id : size.num_rows;
  }
  return ids;
}

// Uniform in [low, 1). Fast enough for the sizes that are timed.
inline std::vector<float> RandomFloats(int64_t size, unsigned seed, float low = 0) {
  std::mt19937 random(seed);
  std::vector<float> values(size);
  for (float& value : values) {
    value = low + (1 - low) * (static_cast<float>(random() >> 8) * 0x1p-24f);
  }
  return values;
}

// The CPU's segments for the valid ids.
inline largeout::MergedRows MergeOnCpu(const std::vector<int64_t>& ids, int64_t num_rows) {
  std::vector<int64_t> rows;
  std::vector<int32_t> places;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= num_rows) continue;
    rows.push_back(ids[i]);
    places.push_back(static_cast<int32_t>(i));
  }
  auto merged = largeout::MergeRows(rows.data(), static_cast<int64_t>(rows.size()), SerialFor);
  for (int32_t& position : merged.positions) position = places[position];
  return merged;
}

template <class Index>
struct MergeOnGpu {
  MergeOnGpu(const std::vector<int64_t>& input, const Size& size, Stream stream)
      : ids(std::vector<Index>(input.begin(), input.end())),
        size(size),
        scratch(MergeRowsScratchBytes(ids.size(), size.num_rows, size.dim)),
        stream(stream) {
    launched = Again();
  }
  Status Again() {
    return MergeRows(ids.data(), ids.size(), size.num_rows, size.dim, scratch.data(), &merged,
                     stream);
  }

  const DeviceArray<Index> ids;
  const Size size;
  const DeviceMemory scratch;
  const Stream stream;
  MergedRows merged;
  Status launched;
};

}  // namespace check
}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_CHECK_ROW_PROBLEM_H_
