// The kernels of row_dots_gradient.cu.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_ROW_DOTS_GRADIENT_BODY_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_ROW_DOTS_GRADIENT_BODY_H_

#include <cstdint>

#include "custom_ops/core/row_dots.h"
#include "custom_ops/cuda/block_tools.h"
#include "custom_ops/cuda/row_dots_gradient.h"
#include "custom_ops/cuda/row_merge.h"

namespace largeout {
namespace cuda {

// Item i: id i of own and then shared classes.
struct JoinIdsBody {
  OwnClasses own;
  SharedClasses shared;
  int64_t* ids;

  LARGEOUT_DEVICE void operator()(int64_t i) const {
    ids[i] = i < own.size() ? own.ids[i] : shared.ids[i - own.size()];
  }
};

inline constexpr int kRowGradientThreads = 256;

// A group of this many threads makes a row: a power of 2, thread t the columns t, t + lanes ...
inline int RowGradientLanes(int64_t dim) {
  int lanes = 8;
  while (lanes < dim && lanes < 128) lanes *= 2;
  return lanes;
}

struct RowGradientBody {
  MergedRows merged;
  OwnClasses own;
  RowDotsGradients gradients;
  int64_t dim;
  int64_t rows;
  RowGradient to;
  int lanes;

  template <class Block>
  LARGEOUT_DEVICE void operator()(const Block& block, char*) const {
    block.ForEachThread([&](int thread) {
      const int64_t num_segments = *merged.num_segments;
      const int64_t groups = kRowGradientThreads / lanes;
      int64_t row = block.index() * groups + thread / lanes;
      for (; row < rows; row += block.num_blocks() * groups) {
        WriteRow(row, row < num_segments, thread % lanes);
      }
    });
  }

 private:
  LARGEOUT_DEVICE void WriteRow(int64_t row, bool is_segment, int lane) const {
    const int32_t begin = is_segment ? merged.offsets[row] : 0;
    const int32_t end = is_segment ? merged.offsets[row + 1] : 0;
    if (lane == 0) {
      to.ids[row] = is_segment ? merged.ids[row] : -1;
      if (to.d_biases != nullptr) to.d_biases[row] = BiasSum(begin, end);
    }
    for (int64_t k = lane; k < dim; k += lanes) to.d_rows[row * dim + k] = Sum(begin, end, k);
  }

  LARGEOUT_DEVICE float Sum(int32_t begin, int32_t end, int64_t k) const {
    const auto own_size = static_cast<int32_t>(own.size());
    const auto per_row = static_cast<int32_t>(own.per_row);
    float sum = 0;
    for (int32_t i = begin; i < end; ++i) {
      const int32_t position = merged.positions[i];
      if (position < own_size) {
        const int64_t feature = position / per_row * dim + k;
        sum = MultiplyAdd(gradients.d_logits[position], gradients.features[feature], sum);
      } else {
        sum += gradients.d_shared_rows[(position - own_size) * dim + k];
      }
    }
    return sum;
  }

  LARGEOUT_DEVICE float BiasSum(int32_t begin, int32_t end) const {
    const auto own_size = static_cast<int32_t>(own.size());
    float sum = 0;
    for (int32_t i = begin; i < end; ++i) {
      const int32_t position = merged.positions[i];
      sum += position < own_size ? gradients.d_logits[position]
                                 : gradients.d_shared_biases[position - own_size];
    }
    return sum;
  }
};

}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_ROW_DOTS_GRADIENT_BODY_H_
