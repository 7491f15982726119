// Arguments of the row-sparse optimizer steps of row_update.h, and the functions that
// row_update_simd.cc defines once per instruction set. No std templates here: see simd_level.h.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_OPTIMIZERS_ROW_UPDATE_RULES_H_
#define LARGEOUT_CUSTOM_OPS_CORE_OPTIMIZERS_ROW_UPDATE_RULES_H_

#include <cstdint>

#include "custom_ops/core/base/bfloat16_rows_simd.h"

namespace largeout {

// m += (g - m) (1 - beta_1); v += (g^2 - v) (1 - beta_2); w -= step_size m / (sqrt(v) +
// epsilon). If last_step is given, m and v are first decayed for the steps since the row's last
// update: m *= beta_1^gap, v *= beta_2^gap with gap = step - last_step - 1; then last_step =
// step. Without the slot m, g is used in its place, as with beta_1 = 0.
struct AdamArguments {
  float* variable;     // [num_rows, dim]
  float* momentum;     // [num_rows, dim] or null
  float* velocity;     // [num_rows, dim]
  int64_t* last_step;  // [num_rows] or null
  int64_t step;        // from 1
  float step_size;     // learning rate with bias correction
  double beta_1;
  double beta_2;
  float epsilon;
  float weight_decay;
};

// a += g^2; w -= learning_rate g / sqrt(a + epsilon).
struct AdagradArguments {
  float* variable;     // [num_rows, dim]
  float* accumulator;  // [num_rows, dim]
  float learning_rate;
  float epsilon;
  float weight_decay;
};

// a += mean(g^2); w -= learning_rate g / sqrt(a + epsilon).
struct RowwiseAdagradArguments {
  float* variable;     // [num_rows, dim]
  float* accumulator;  // [num_rows]
  float learning_rate;
  float epsilon;
  float weight_decay;
};

// m = decay m - learning_rate g; w += m, or with nesterov w += decay m - learning_rate g.
// Without the slot m: w -= learning_rate g.
struct MomentumArguments {
  float* variable;  // [num_rows, dim]
  float* momentum;  // [num_rows, dim] or null
  float learning_rate;
  float decay;
  bool nesterov;
  float weight_decay;
};

// The arrays of MergedRows as plain pointers, and the gradients. If the variable is in
// bfloat16, its rows are in `rounded`, and `variable` of the arguments is not used.
struct RowSegments {
  const int64_t* ids;
  const int64_t* offsets;
  const int32_t* positions;
  const float* values;
  int64_t dim;
  RoundedRows rounded;
};

// These functions process the segments [begin, end). buffer: 3 * dim floats of scratch.
#define LARGEOUT_DECLARE_ROW_UPDATES(level)                                                  \
  namespace level {                                                                          \
  void RowAdam(const RowSegments&, const AdamArguments&, int64_t begin, int64_t end,         \
               float* buffer);                                                               \
  void RowAdagrad(const RowSegments&, const AdagradArguments&, int64_t begin, int64_t end,   \
                  float* buffer);                                                            \
  void RowRowwiseAdagrad(const RowSegments&, const RowwiseAdagradArguments&, int64_t begin,  \
                         int64_t end, float* buffer);                                        \
  void RowMomentum(const RowSegments&, const MomentumArguments&, int64_t begin, int64_t end, \
                   float* buffer);                                                           \
  void SumSegments(const RowSegments&, float* sums, int64_t begin, int64_t end,              \
                   float* buffer);                                                           \
  }

LARGEOUT_DECLARE_ROW_UPDATES(generic)
LARGEOUT_DECLARE_ROW_UPDATES(avx2)
LARGEOUT_DECLARE_ROW_UPDATES(avx512)

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_OPTIMIZERS_ROW_UPDATE_RULES_H_
