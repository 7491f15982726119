// The kernels of row_dots_gradient.cu.

#ifndef LARGEOUT_CUSTOM_OPS_CUDA_ROW_DOTS_GRADIENT_BODY_H_
#define LARGEOUT_CUSTOM_OPS_CUDA_ROW_DOTS_GRADIENT_BODY_H_

#include <cstdint>

#include "custom_ops/core/row_dots.h"
#include "custom_ops/cuda/block.h"
#include "custom_ops/cuda/row_dots_gradient.h"
#include "custom_ops/cuda/row_sums.h"

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

// What a position adds to the gradient of its class; the bias is one more column.
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
  static constexpr int kColumnsAtOnce = 5;  // 128 and the bias in one pass
  const int32_t* positions;
  OwnClasses own;
  RowDotsGradients gradients;
  int64_t dim;
  int64_t width;  // dim, and 1 for the bias if there is one

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

// Rows behind those of the classes become zeros, with id -1.
struct RowGradientBody {
  MergedRows merged;
  DotTerms terms;
  int64_t rows;
  RowGradient to;

  template <class Block>
  LARGEOUT_DEVICE void operator()(const Block& block, char*) const {
    block.ForEachThread([&](int thread) {
      const int64_t num_segments = *merged.num_segments;
      const int64_t step = block.num_blocks() * kRowsPerBlock;
      int64_t row = block.index() * kRowsPerBlock + thread / kGroup;
      for (; row < rows; row += step) WriteRow(row, row < num_segments, thread % kGroup);
    });
  }

 private:
  LARGEOUT_DEVICE void WriteRow(int64_t row, bool is_class, int lane) const {
    if (lane == 0) to.ids[row] = is_class ? merged.ids[row] : -1;
    for (int64_t column = lane; column < terms.width;
         column += DotTerms::kColumnsAtOnce * kGroup) {
      float sums[DotTerms::kColumnsAtOnce] = {};
      if (is_class) SumSegment(merged, terms, row, column, sums);
      LARGEOUT_UNROLL
      for (int k = 0; k < DotTerms::kColumnsAtOnce; ++k) {
        const int64_t at = column + k * kGroup;
        if (at < terms.dim) to.d_rows[row * terms.dim + at] = sums[k];
        if (at == terms.dim && to.d_biases != nullptr) to.d_biases[row] = sums[k];
      }
    }
  }
};

}  // namespace cuda
}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CUDA_ROW_DOTS_GRADIENT_BODY_H_
