#include "custom_ops/core/factored_output_forms.h"

namespace largeout {
namespace {

bool IsLarge(int64_t batch, int64_t width) { return batch > width; }

}  // namespace

void ScaleRows(double factor, const double* scales, const double* rows, int64_t stride,
               const ParallelFor& parallel, PaddedMatrix* to) {
  ForEachRow(to->rows(), to->width(), parallel, [&](int64_t j) {
    const double scale = factor * scales[j];
    const double* from = rows + j * stride;
    double* row = to->row(j);
    for (int64_t k = 0; k < to->width(); ++k) row[k] = scale * from[k];
  });
}

std::unique_ptr<FactoredForm> MakeFactoredForm(const FactoredTerms& terms, Arena* arena) {
  if (IsLarge(terms.batch(), terms.width())) {
    return std::make_unique<LargeBatchForm>(terms, arena);
  }
  return std::make_unique<SmallBatchForm>(terms, arena);
}

int64_t SizeOfFactoredForm(int64_t batch, int64_t width) {
  return IsLarge(batch, width) ? LargeBatchForm::Size(batch, width)
                               : SmallBatchForm::Size(batch, width);
}

}  // namespace largeout
