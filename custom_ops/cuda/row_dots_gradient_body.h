// The terms of the sums of row_dots_gradient.cu.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_ROW_DOTS_GRADIENT_BODY_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_ROW_DOTS_GRADIENT_BODY_H_

#include <cstdint>

#include "custom_ops/core/rows/row_dots.h"
#include "custom_ops/cuda/block.h"
#include "custom_ops/cuda/row_dots_gradient.h"
#include "custom_ops/cuda/row_sums.h"

namespace largeout {
namespace cuda {

// Item i: id i of the own classes, followed by the shared classes.
struct JoinIdsBody {
  OwnClasses own;
  SharedClasses shared;
  int64_t* ids;

  LARGEOUT_DEVICE void operator()(int64_t i) const {
    ids[i] = i < own.size() ? own.ids[i] : shared.ids[i - own.size()];
  }
};

// The term that a position adds to the gradient of its class. The bias is an additional column.
struct DotTerm {
  float weight;
  const float* row;
  int64_t dim;
  const float* bias;  // null: 1
  LARGEOUT_DEVICE float Read(int64_t column) const {
    if (column < dim) return row[column];
    return bias == nullptr ? 1 : *bias;
  }
};

struct DotTerms {
  static constexpr int kColumnsAtOnce = 5;  // 128 columns and the bias in one pass
  const int32_t* positions;
  OwnClasses own;
  RowDotsGradients gradients;
  int64_t dim;
  int64_t width;  // dim, plus 1 if there is a bias

  LARGEOUT_DEVICE DotTerm At(int32_t place) const {
    const int32_t position = positions[place];
    const auto own_size = static_cast<int32_t>(own.size());
    if (position < own_size) {
      const int64_t row = position / static_cast<int32_t>(own.per_row);
      return {gradients.d_logits[position], gradients.features + row * dim, dim, nullptr};
    }
    const int64_t i = position - own_size;
    return {1, gradients.d_shared_rows + i * dim, dim, gradients.d_shared_biases + i};
  }
};

}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_ROW_DOTS_GRADIENT_BODY_H_
