// The vectorised loops of row_dots.cc, at each level of simd_level.h.

#ifndef LARGEOUT_CUSTOM_OPS_CORE_ROWS_ROW_DOTS_SIMD_H_
#define LARGEOUT_CUSTOM_OPS_CORE_ROWS_ROW_DOTS_SIMD_H_

#include <cstdint>

#include "custom_ops/core/class_scan/class_scan_types.h"

namespace largeout {

// One entry per example: ids and values [batch, per_row], vectors [batch, dim].
struct DotExamples {
  const int64_t* ids;
  int64_t per_row;
  float no_class;  // the logit of padding (id -1)
};

// The gradients that are summed per row: see RowDotsRowGradient.
struct DotSegments {
  const int64_t* offsets;
  const int32_t* positions;
  int64_t own_size;
  int64_t per_row;
  int64_t dim;
  const float* features;
  const float* d_logits;
  const float* d_shared_rows;
};

// These functions process the examples or segments [begin, end).
#define LARGEOUT_DECLARE_ROW_DOTS(level)                                                       \
  namespace level {                                                                            \
  void DotOwnClasses(const ClassMatrix& matrix, const DotExamples& own, const float* features, \
                     int64_t begin, int64_t end, float* logits);                               \
  void SumOwnClasses(const ClassMatrix& matrix, const DotExamples& own, const float* weights,  \
                     int64_t begin, int64_t end, float* sums);                                 \
  void SumDotSegments(const DotSegments& segments, int64_t begin, int64_t end, float* rows);   \
  }

LARGEOUT_DECLARE_ROW_DOTS(generic)
LARGEOUT_DECLARE_ROW_DOTS(avx2)
LARGEOUT_DECLARE_ROW_DOTS(avx512)

#undef LARGEOUT_DECLARE_ROW_DOTS

}  // namespace largeout

#endif  // LARGEOUT_CUSTOM_OPS_CORE_ROWS_ROW_DOTS_SIMD_H_
